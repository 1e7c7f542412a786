// Package local runs the services that Tooltape needs on one machine, for `tooltape dev` and for tests: an in-process
// Kafka and a PostgreSQL of one's own. Nothing else imports it. What it starts listens on 127.0.0.1 alone and ends with
// the process that started it, however that process ends.
//
// Both services may share one directory; it holds, for each,
//
//	postgres/  postgres.password  postgres.port  postgres.log  postgres.lock
//	kafka/                        kafka.port                   kafka.lock
package local
