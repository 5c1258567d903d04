//! Services of a session: defined, started, stopped, read.

use crate::call::{Call, Client, EVENT_STREAM, decode};
use crate::events::SILENCE;
use crate::sessions::session_path;
use crate::sse::{SseBody, StreamEnd};
use crate::url::{query, segment};
use crate::{ClientError, types};
use hyper::{Method, StatusCode};
use serde::Serialize;
use types::{ExecChunk, OutputStream, Problem, Process, Service, ServiceList, ServiceLogs, ServiceSpec};

/// Which lines of a service are wanted; without either, the last hundred of each stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct LogOptions {
    /// The last so many of each stream.
    pub tail: Option<u64>,
    /// Those after an answer before, as it said.
    pub cursor: Option<String>,
}

/// What is written by a service that is followed.
#[derive(Debug, Clone, PartialEq)]
pub enum LogOutput {
    Output {
        stream: OutputStream,
        text: String,
    },
    /// The run is over; the last one.
    Exit(Box<Process>),
}

/// The output of a service's run, as it comes.
pub struct LogStream {
    body: SseBody,
}

fn service_path(session: &str, name: &str) -> String {
    format!("{}/services/{}", session_path(session), segment(name))
}

impl Client {
    /// Defines a service and starts it. Returns when it is ready or has failed, or, without `wait`, at once; and
    /// whether it is new.
    pub async fn put_service(
        &self,
        (id, name): (&str, &str),
        spec: &ServiceSpec,
        wait: bool,
    ) -> Result<(Service, bool), ClientError> {
        let path = format!("{}?wait={wait}", service_path(id, name));
        let answer = self.answer(&Call::mutating(Method::PUT, path)?.json(spec)?).await?;
        let service = decode("the service", &answer.body)?;
        Ok((service, answer.status == StatusCode::CREATED))
    }

    pub async fn services(&self, id: &str) -> Result<ServiceList, ClientError> {
        self.value(&Call::get(format!("{}/services", session_path(id)))).await
    }

    pub async fn service(&self, id: &str, name: &str) -> Result<Service, ClientError> {
        self.value(&Call::get(service_path(id, name))).await
    }

    /// Deleting what is gone succeeds.
    pub async fn delete_service(&self, id: &str, name: &str) -> Result<(), ClientError> {
        self.answer(&Call::mutating(Method::DELETE, service_path(id, name))?).await.map(|_| ())
    }

    pub async fn start_service(&self, id: &str, name: &str, wait: bool) -> Result<Service, ClientError> {
        self.value(&Call::post(format!("{}/start?wait={wait}", service_path(id, name)))?).await
    }

    /// With `cascade`, those that depend on it are stopped before.
    pub async fn stop_service(&self, id: &str, name: &str, cascade: bool) -> Result<Service, ClientError> {
        self.value(&Call::post(format!("{}/stop?cascade={cascade}", service_path(id, name)))?).await
    }

    pub async fn restart_service(&self, id: &str, name: &str, wait: bool) -> Result<Service, ClientError> {
        self.value(&Call::post(format!("{}/restart?wait={wait}", service_path(id, name)))?).await
    }

    pub async fn service_logs(
        &self,
        id: &str,
        name: &str,
        options: &LogOptions,
    ) -> Result<ServiceLogs, ClientError> {
        self.value(&Call::get(format!("{}/logs{}", service_path(id, name), query(options)))).await
    }

    /// The same, and then what is written until the run is over.
    pub async fn follow_service(
        &self,
        id: &str,
        name: &str,
        options: &LogOptions,
    ) -> Result<LogStream, ClientError> {
        let call = Call::get(format!("{}/logs{}", service_path(id, name), query(options)));
        let body = SseBody::open(self, &call.accept(EVENT_STREAM), Some(SILENCE)).await?;
        Ok(LogStream { body })
    }
}

impl LogStream {
    /// The next piece of output; nothing when the server ends the stream before the run is over.
    pub async fn next(&mut self) -> Result<Option<LogOutput>, ClientError> {
        loop {
            let event = match self.body.next().await {
                Ok(event) => event,
                Err(StreamEnd::Over) => return Ok(None),
                Err(StreamEnd::Failed(error)) => return Err(error),
                Err(StreamEnd::Broke(why)) => {
                    return Err(ClientError::Transport(format!(
                        "the connection broke while the service was followed: {why}; follow it again"
                    )));
                }
            };
            let data = event.data.as_bytes();
            let stream = match event.event.as_str() {
                "stdout" => OutputStream::Stdout,
                "stderr" => OutputStream::Stderr,
                "exit" => return Ok(Some(LogOutput::Exit(Box::new(decode("the service", data)?)))),
                "error" => return Err(decode::<Problem>("the service", data)?.into()),
                // What a newer server also says.
                _ => continue,
            };
            let chunk: ExecChunk = decode("the service", data)?;
            return Ok(Some(LogOutput::Output { stream, text: chunk.data }));
        }
    }
}
