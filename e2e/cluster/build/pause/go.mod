module blockhouse.test/cluster/pause

go 1.24.0
