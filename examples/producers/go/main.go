// Sends 10 messages of 10 rows of the table visits; arguments: brokers, topic, first visit_id.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"example/visits/rows"
)

//go:generate go build -o bin/ google.golang.org/protobuf/cmd/protoc-gen-go
//go:generate protoc --plugin=bin/protoc-gen-go --proto_path=.. --go_out=. --go_opt=module=example/visits,Mvisits.proto=example/visits/rows visits.proto

const (
	table          = "default.visits"
	schemaRevision = "1" // the second line of visits.proto has it
	messages       = 10
	size           = 10 // rows of a message
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 3 {
		return fmt.Errorf("usage: visits BROKERS TOPIC FIRST_VISIT_ID")
	}
	first, err := strconv.ParseUint(arguments[2], 10, 64)
	if err != nil {
		return err
	}
	// The client is idempotent and waits for all replicas in sync unless it is given other options.
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(arguments[0], ",")...),
		kgo.DefaultProduceTopic(arguments[1]),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	records := make([]*kgo.Record, 0, messages)
	for start := first; start < first+messages*size; start += size {
		record, err := message(start)
		if err != nil {
			return err
		}
		records = append(records, record)
	}
	if err := client.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		return err
	}
	fmt.Printf("the brokers have %d rows of %s\n", messages*size, table)
	return nil
}

func message(first uint64) (*kgo.Record, error) {
	batch := &rows.RowBatch{}
	for visit := first; visit < first+size; visit++ {
		batch.Rows = append(batch.Rows, &rows.Row{
			VisitId: proto.Uint64(visit),
			Page:    fmt.Appendf(nil, "/go/%d", visit),
			At:      proto.Uint32(uint32(time.Now().Unix())),
		})
	}
	value, err := proto.Marshal(batch)
	if err != nil {
		return nil, err
	}
	return &kgo.Record{
		Key:   []byte(strconv.FormatUint(first, 10)),
		Value: value,
		Headers: []kgo.RecordHeader{
			{Key: "table", Value: []byte(table)},
			{Key: "format", Value: []byte("rows")},
			{Key: "schema", Value: []byte(schemaRevision)},
		},
	}, nil
}
