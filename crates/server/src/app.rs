//! What all requests share.

use crate::compat::slots::Pools;
use crate::config::ServerConfig;
use crate::metrics::HttpMetrics;
use crate::openapi::Document;
use crate::rate::RateLimiter;
use crate::request_id::RequestIds;
use bytes::Bytes;
use tokio::sync::watch;
use workroom_engine::Engine;

pub(crate) struct App {
    pub(crate) engine: Engine,
    pub(crate) config: ServerConfig,
    pub(crate) rates: RateLimiter,
    pub(crate) metrics: HttpMetrics,
    pub(crate) ids: RequestIds,
    /// The OpenAPI document as it is served.
    pub(crate) document: Bytes,
    pub(crate) stopping: Stopping,
    /// The slots of each caller that has some.
    pub(crate) slots: Pools,
    /// Where browsers find it.
    pub(crate) tcp_port: Option<u16>,
}

impl App {
    pub(crate) fn new(
        config: ServerConfig,
        engine: Engine,
        stopping: Stopping,
        tcp_port: Option<u16>,
    ) -> App {
        let document = Document::build();
        App {
            rates: RateLimiter::new(config.rate),
            metrics: HttpMetrics::new(engine.clone(), document.operations()),
            ids: RequestIds::new(),
            document: document.text().into(),
            slots: Pools::new(engine.clone(), config.slots),
            engine,
            config,
            stopping,
            tcp_port,
        }
    }
}

/// Tells when the server is to end.
#[derive(Clone)]
pub(crate) struct Stopping(watch::Receiver<bool>);

impl Stopping {
    /// True is sent, or the sender dropped, when the server is to end.
    pub(crate) fn channel() -> (watch::Sender<bool>, Stopping) {
        let (stop, stopping) = watch::channel(false);
        (stop, Stopping(stopping))
    }

    pub(crate) async fn begun(&mut self) {
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}
