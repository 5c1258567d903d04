//! Numbers for Prometheus: of requests, counted here, and of the engine, asked for when they are wanted.

use crate::openapi::Operation;
use axum::http::{Method, StatusCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::HashMap;
use std::time::Duration;
use workroom_engine::Engine;

/// From the tenth of a millisecond that this layer may take to a command's default time-out.
const BUCKETS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];
const CLASSES: [&str; 3] = ["2xx", "4xx", "5xx"];

pub(crate) struct HttpMetrics {
    registry: Registry,
    under_way: Gauge,
    /// By path. Made once, so that a request finds its counters without a lock.
    routes: HashMap<String, Vec<Route>>,
    /// For what is no route.
    unknown: Route,
}

struct Route {
    method: Method,
    statuses: Vec<u16>,
    answered: [Counter; 3],
    seconds: Histogram,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    method: String,
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    method: String,
    route: String,
    status: &'static str,
}

struct Families {
    answered: Family<AnswerLabels, Counter>,
    seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
}

/// One request under way, until it is dropped.
pub(crate) struct UnderWay(Gauge);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl HttpMetrics {
    pub(crate) fn new(engine: Engine, operations: Vec<Operation>) -> HttpMetrics {
        let families = Families {
            answered: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        };
        let mut registry = Registry::with_prefix("workroom");
        let under_way = Gauge::default();
        registry.register("http_requests_under_way", "Requests that are being answered", under_way.clone());
        registry.register("http_requests", "Requests that were answered", families.answered.clone());
        registry.register(
            "http_request_seconds",
            "Time until the head of the answer, which for a stream is its beginning",
            families.seconds.clone(),
        );
        registry.register_collector(Box::new(EngineNumbers(engine)));
        let mut routes: HashMap<String, Vec<Route>> = HashMap::new();
        for operation in operations {
            let route = Route::new(&families, operation.method, &operation.path, operation.statuses);
            routes.entry(operation.path).or_default().push(route);
        }
        let unknown = Route::new(&families, Method::TRACE, "unknown", Vec::new());
        HttpMetrics { registry, under_way, routes, unknown }
    }

    pub(crate) fn under_way(&self) -> UnderWay {
        self.under_way.inc();
        UnderWay(self.under_way.clone())
    }

    /// As an `Allow` header has them.
    pub(crate) fn methods_of(&self, route: &str) -> String {
        let mut methods = Vec::new();
        for known in self.routes.get(route).into_iter().flatten() {
            methods.push(known.method.as_str());
            if known.method == Method::GET {
                methods.push("HEAD");
            }
        }
        methods.join(", ")
    }

    /// Counts an answer; false if the document does not declare it.
    pub(crate) fn answered(
        &self,
        method: &Method,
        route: Option<&str>,
        status: StatusCode,
        elapsed: Duration,
    ) -> bool {
        let asked = if method == Method::HEAD { &Method::GET } else { method };
        let documented = route.and_then(|route| self.routes.get(route));
        let found = documented.and_then(|methods| methods.iter().find(|route| route.method == asked));
        let counted = found.unwrap_or(&self.unknown);
        let class = match status.as_u16() {
            ..400 => 0,
            400..500 => 1,
            _ => 2,
        };
        counted.answered[class].inc();
        counted.seconds.observe(elapsed.as_secs_f64());
        match found {
            Some(found) => found.statuses.contains(&status.as_u16()),
            // No such path, or no such method of it: there is nothing to declare, and nothing to succeed with.
            None => status.is_client_error() && (route.is_none() || documented.is_some()),
        }
    }

    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::with_capacity(32 << 10);
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Route {
    fn new(families: &Families, method: Method, path: &str, statuses: Vec<u16>) -> Route {
        let shown = if path == "unknown" { "any".to_owned() } else { method.to_string() };
        let answered = CLASSES.map(|status| {
            let labels = AnswerLabels { method: shown.clone(), route: path.to_owned(), status };
            families.answered.get_or_create_owned(&labels)
        });
        let labels = RouteLabels { method: shown.clone(), route: path.to_owned() };
        let seconds = families.seconds.get_or_create_owned(&labels);
        Route { method, statuses, answered, seconds }
    }
}

struct EngineNumbers(Engine);

impl std::fmt::Debug for EngineNumbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EngineNumbers")
    }
}

impl Collector for EngineNumbers {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let now = self.0.metrics();
        let gauges = [
            ("sessions_live", "Sessions that have a room", now.sessions_live),
            ("sessions_queued", "Sessions that wait for a place", now.sessions_queued),
            ("execs_running", "Commands under way", now.execs_running),
            ("rooms_memory_bytes", "Memory of all rooms, as they were last looked at", now.rooms.memory),
            ("rooms_pids", "Processes and threads of all rooms", now.rooms.pids),
            (
                "rooms_disk_bytes",
                "Bytes of the layers that rooms write to, of those that are known",
                now.rooms.disk,
            ),
            ("rooms_cpu_milli", "Thousandths of a CPU that all rooms use", now.rooms.cpu_milli),
            ("network_rooms", "Rooms that have a network", now.network_rooms),
            ("network_connections_open", "Connections of rooms that are open", now.network_open),
        ];
        for (name, help, value) in gauges {
            let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        let counters = [
            ("sessions_created", "Sessions made", now.sessions_created),
            ("rooms_started", "Rooms built", now.rooms_started),
            ("rooms_failed", "Rooms that could not be built", now.rooms_failed),
            ("rooms_lost", "Rooms that ended without being asked to", now.rooms_lost),
            ("rooms_adopted", "Rooms of an earlier server that were taken over", now.rooms_adopted),
            ("execs_started", "Commands started", now.execs_started),
            ("execs_timed_out", "Commands ended by their time-out", now.execs_timed_out),
            ("output_bytes", "Bytes that commands wrote", now.output_bytes),
            ("limit_memory_kills", "Processes of rooms killed for want of memory", now.limits_memory),
            ("limit_pids_denials", "Processes of rooms that were not made", now.limits_pids),
            ("limit_disk_full", "Times that a session's disk was seen to be full", now.limits_disk),
            ("network_sent_bytes", "Bytes that rooms have sent", now.network_sent),
            ("network_received_bytes", "Bytes that rooms have received", now.network_received),
            ("network_connections", "Connections of rooms that were made", now.network_opened),
            ("network_denied", "Connections and look-ups of rooms that were denied", now.network_denied),
            ("network_failed", "Connections of rooms that could not be made", now.network_failed),
            (
                "network_process_restarts",
                "Network processes that died and were replaced",
                now.network_restarts,
            ),
            ("journal_entries", "Entries written to journals", now.journal_entries),
            ("store_commits", "Transactions of the store", now.store_commits),
            ("store_failures", "Transactions that the store could not write", now.store_failures),
        ];
        for (name, help, value) in counters {
            let metric = ConstCounter::new(value);
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        Ok(())
    }
}
