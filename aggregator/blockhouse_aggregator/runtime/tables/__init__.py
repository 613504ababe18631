"""The pipeline's tables as this aggregator knows them: catalog, hazards, schema rollouts, the queue at a lock."""
