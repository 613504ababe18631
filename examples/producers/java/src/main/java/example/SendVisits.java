package example;

import static java.nio.charset.StandardCharsets.UTF_8;

import blockhouse.rows.default__visits.Visits.Row;
import blockhouse.rows.default__visits.Visits.RowBatch;
import com.google.protobuf.ByteString;
import java.time.Instant;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Sends 10 messages of 10 rows of the table visits; arguments: brokers, topic, first visit_id. */
final class SendVisits {
  private static final String TABLE = "default.visits";
  private static final String SCHEMA_REVISION = "1"; // the second line of visits.proto has it
  private static final int MESSAGES = 10;
  private static final int ROWS = 10;

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 3) {
      System.err.println("usage: java -jar visits.jar BROKERS TOPIC FIRST_VISIT_ID");
      System.exit(2);
    }
    long first = Long.parseUnsignedLong(arguments[2]);
    var serializer = new ByteArraySerializer();
    try (var producer = new KafkaProducer<>(settings(arguments[0]), serializer, serializer)) {
      List<Future<RecordMetadata>> sent = new ArrayList<>();
      for (int message = 0; message < MESSAGES; message++) {
        sent.add(producer.send(message(arguments[1], first + (long) message * ROWS)));
      }
      for (Future<RecordMetadata> one : sent) {
        one.get(); // throws what the brokers refused
      }
    }
    System.out.println("the brokers have " + MESSAGES * ROWS + " rows of " + TABLE);
  }

  private static Properties settings(String brokers) {
    var settings = new Properties();
    settings.put("bootstrap.servers", brokers);
    settings.put("acks", "all");
    settings.put("enable.idempotence", "true"); // a retry within a cluster does not double a message
    settings.put("compression.type", "zstd");
    return settings;
  }

  private static ProducerRecord<byte[], byte[]> message(String topic, long first) {
    var batch = RowBatch.newBuilder();
    for (long visit = first; visit < first + ROWS; visit++) {
      batch.addRows(
          Row.newBuilder()
              .setVisitId(visit)
              .setPage(ByteString.copyFromUtf8("/java/" + visit))
              .setAt((int) Instant.now().getEpochSecond()));
    }
    byte[] key = Long.toUnsignedString(first).getBytes(UTF_8);
    var record = new ProducerRecord<>(topic, key, batch.build().toByteArray());
    record.headers().add("table", TABLE.getBytes(UTF_8));
    record.headers().add("format", "rows".getBytes(UTF_8));
    record.headers().add("schema", SCHEMA_REVISION.getBytes(UTF_8));
    return record;
  }
}
