"""`blockhouse dlq`: messages that could not be loaded, shown and sent again.

`letters` decides what a record of the dead-letter topic means (pure), `log` reads the topic and sends messages again,
`cli` is the command. Nothing here touches the aggregator: a replayed message is a new one of its producer's topic.
"""
