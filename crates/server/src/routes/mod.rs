//! Every route, and the handler that answers it.

pub(crate) mod archive;
pub(crate) mod attach;
pub(crate) mod batch;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod exec_stream;
pub(crate) mod file_verbs;
pub(crate) mod files;
pub(crate) mod lifecycle;
pub(crate) mod meta;
pub(crate) mod mounts;
pub(crate) mod network;
pub(crate) mod past;
pub(crate) mod policy;
pub(crate) mod pools;
pub(crate) mod ports;
pub(crate) mod private;
pub(crate) mod process_stream;
pub(crate) mod processes;
pub(crate) mod recordings;
pub(crate) mod secrets;
pub(crate) mod services;
pub(crate) mod sessions;
pub(crate) mod shells;
pub(crate) mod terminals;
pub(crate) mod tokens;
pub(crate) mod transfer;
pub(crate) mod upload;
pub(crate) mod usage;
pub(crate) mod watch;

use crate::app::App;
use crate::gate::gate;
use crate::reply::Failure;
use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, delete, get, post, put};
use std::sync::Arc;
use workroom_types::{Problem, ProblemCode};

pub(crate) fn router(app: Arc<App>) -> Router {
    let session_secret = put(secrets::set_of_session).delete(secrets::remove_of_session);
    let private_file = get(private::read).put(private::write).delete(private::delete);
    Router::new()
        .route("/v1/sessions", get(sessions::list).post(sessions::create))
        .route("/v1/sessions/resolve", post(sessions::resolve))
        .route("/v1/sessions/{id}", get(sessions::show).patch(sessions::update).delete(sessions::delete))
        .route("/v1/sessions/{id}/policy", get(policy::show).put(policy::replace))
        .route("/v1/policy", get(policy::server))
        .route("/v1/sessions/{id}/usage", get(usage::of_session))
        .route("/v1/usage", get(usage::list))
        .route("/v1/sessions/{id}/start", post(lifecycle::start))
        .route("/v1/sessions/{id}/stop", post(lifecycle::stop))
        .route("/v1/sessions/{id}/pause", post(lifecycle::pause))
        .route("/v1/sessions/{id}/resume", post(lifecycle::resume))
        .route("/v1/sessions/{id}/exec", post(exec::exec))
        .route("/v1/sessions/{id}/processes", get(processes::list).post(processes::start))
        .route("/v1/sessions/{id}/processes/{process}", get(processes::show).delete(processes::remove))
        .route("/v1/sessions/{id}/processes/{process}/output", get(processes::output))
        .route("/v1/sessions/{id}/processes/{process}/input", post(processes::input))
        .route("/v1/sessions/{id}/processes/{process}/signal", post(processes::signal))
        .route("/v1/sessions/{id}/processes/{process}/resize", post(processes::resize))
        .route("/v1/sessions/{id}/processes/{process}/wait", get(processes::wait))
        .route("/v1/sessions/{id}/processes/{process}/attach", get(attach::attach))
        .route("/v1/sessions/{id}/shells", get(shells::list).post(shells::create))
        .route("/v1/sessions/{id}/shells/{shell}", get(shells::show).delete(shells::remove))
        .route("/v1/sessions/{id}/shells/{shell}/run", post(shells::run))
        .route("/v1/sessions/{id}/terminals", get(terminals::list).post(terminals::open))
        .route("/v1/sessions/{id}/terminals/{terminal}", get(terminals::show).delete(terminals::close))
        .route("/v1/sessions/{id}/terminals/{terminal}/input", post(terminals::input))
        .route("/v1/sessions/{id}/terminals/{terminal}/plain", get(terminals::plain))
        .route("/v1/sessions/{id}/terminals/{terminal}/screen", get(terminals::screen))
        .route("/v1/sessions/{id}/terminals/{terminal}/wait", post(terminals::wait))
        .route("/v1/sessions/{id}/terminals/{terminal}/resize", post(terminals::resize))
        .route("/v1/sessions/{id}/terminals/{terminal}/signal", post(terminals::signal))
        .route("/v1/sessions/{id}/recordings", get(recordings::list))
        .route("/v1/sessions/{id}/recordings/{process}", get(recordings::read).delete(recordings::delete))
        .route("/v1/sessions/{id}/recordings/{process}/transcript", get(recordings::transcript))
        .route("/v1/sessions/{id}/recordings/{process}/markers", post(recordings::mark))
        .route("/v1/mounts", get(mounts::offer))
        .route("/v1/sessions/{id}/mounts", get(mounts::list).post(mounts::add))
        .route("/v1/sessions/{id}/mounts/{alias}", delete(mounts::remove))
        .route("/v1/sessions/{id}/ports", get(ports::list).post(ports::publish))
        .route("/v1/sessions/{id}/ports/{port}", delete(ports::unpublish))
        .route("/v1/sessions/{id}/ports/{port}/ticket", post(ports::ticket))
        .route("/v1/sessions/{id}/network", get(network::show))
        .route("/v1/sessions/{id}/network/proposal", get(network::propose))
        .route("/v1/sessions/{id}/services", get(services::list))
        .route("/v1/sessions/{id}/services/{name}", service())
        .route("/v1/sessions/{id}/services/{name}/start", post(services::start))
        .route("/v1/sessions/{id}/services/{name}/stop", post(services::stop))
        .route("/v1/sessions/{id}/services/{name}/restart", post(services::restart))
        .route("/v1/sessions/{id}/services/{name}/logs", get(services::logs))
        .route("/v1/sessions/{id}/events", get(events::of_session).post(events::append))
        .route("/v1/sessions/{id}/private", get(private::list))
        .route("/v1/sessions/{id}/private/{name}", private_file)
        .route("/v1/sessions/{id}/snapshots", get(past::list).post(past::take))
        .route("/v1/sessions/{id}/snapshots/{name}", delete(past::delete))
        .route("/v1/sessions/{id}/reset", post(past::reset))
        .route("/v1/sessions/{id}/baseline", post(past::baseline))
        .route("/v1/sessions/{id}/fork", post(past::fork))
        .route("/v1/sessions/{id}/diff", get(past::diff))
        .route("/v1/sessions/{id}/merge", post(past::merge))
        .route("/v1/sessions/{id}/digest", get(past::digest))
        .route("/v1/sessions/{id}/lineage", get(past::lineage))
        .route("/v1/sessions/{id}/export", get(transfer::export))
        .route("/v1/sessions/import", post(transfer::import))
        .route("/v1/pools", get(pools::list))
        .route("/v1/pools/{name}", get(pools::show).put(pools::set).delete(pools::delete))
        .route("/v1/pools/{name}/acquire", post(pools::acquire))
        .route("/v1/pools/{name}/release", post(pools::release))
        .route("/v1/pools/{name}/extend", post(pools::extend))
        .route("/v1/pools/{name}/reset", post(pools::reset))
        .route("/v1/batch", post(batch::batch))
        .route("/v1/gc", post(past::collect_garbage))
        .route("/v1/sessions/{id}/files", get(files::list).post(upload::upload))
        .route("/v1/sessions/{id}/files/{*path}", file())
        .route("/v1/sessions/{id}/files/stat", file().post(file_verbs::stat))
        .route("/v1/sessions/{id}/files/mkdir", file().post(file_verbs::mkdir))
        .route("/v1/sessions/{id}/files/move", file().post(file_verbs::rename))
        .route("/v1/sessions/{id}/files/copy", file().post(file_verbs::copy))
        .route("/v1/sessions/{id}/files/edit", file().post(file_verbs::edit))
        .route("/v1/sessions/{id}/files/search", file().post(file_verbs::search))
        .route("/v1/sessions/{id}/files/patch", file().post(file_verbs::patch))
        .route("/v1/sessions/{id}/files/usage", file().post(file_verbs::usage))
        .route("/v1/sessions/{id}/archive", get(archive::export).post(archive::import))
        .route("/v1/sessions/{id}/watch", get(watch::watch))
        .route("/v1/events", get(events::of_all))
        .route("/v1/secrets", get(secrets::list))
        .route("/v1/secrets/rotate", secret().post(secrets::rotate))
        .route("/v1/secrets/{name}", secret())
        .route("/v1/sessions/{id}/secrets", get(secrets::list_of_session))
        .route("/v1/sessions/{id}/secrets/{name}", session_secret)
        .route("/v1/tokens", get(tokens::list).post(tokens::create))
        .route("/v1/tokens/{id}", delete(tokens::revoke))
        .route("/v1/capabilities", get(meta::capabilities))
        .route("/v1/openapi.json", get(meta::document))
        .route("/healthz", get(meta::healthy))
        .route("/readyz", get(meta::ready))
        .route("/metrics", get(meta::metrics))
        .nest("/compat/slots", crate::compat::slots::routes_for(app.clone()))
        .fallback(no_route)
        .layer(from_fn_with_state(app.clone(), gate))
        .with_state(app)
}

/// A file by its path, which may be the same as a verb's.
fn file() -> MethodRouter<Arc<App>> {
    get(files::read).put(files::write).delete(files::delete)
}

/// A secret by its name, which may be the same as a verb's.
fn secret() -> MethodRouter<Arc<App>> {
    put(secrets::set).delete(secrets::remove)
}

fn service() -> MethodRouter<Arc<App>> {
    get(services::show).put(services::put).delete(services::delete)
}

async fn no_route(request: Request) -> Failure {
    let path: String = request.uri().path().chars().take(200).collect();
    Problem::new(
        ProblemCode::NotFound,
        format!("there is no route {path}"),
        "GET /v1/openapi.json lists all routes",
    )
    .into()
}
