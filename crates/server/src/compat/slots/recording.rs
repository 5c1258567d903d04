//! The terminal's recording: kept by the engine, streamed from there, and put into the workspace where clients read it.

use super::files::write;
use super::pool::Turn;
use bytes::Bytes;
use std::time::Duration;
use workroom_engine::RecordingQuery;
use workroom_types::{CastFormat, FilePath, Problem};

/// Where it is in the workspace.
pub(super) const NAME: &str = ".asciinema.cast";

/// How long what was just written may take to be recorded.
const PATIENCE: Duration = Duration::from_secs(2);

/// The recording from a byte on, as far as anything was written until now: whole lines of asciicast v2.
pub(super) async fn read(turn: &Turn<'_>, offset: u64) -> Result<Vec<u8>, Problem> {
    let Some(terminal) = &turn.desk.terminal else { return Ok(Vec::new()) };
    let (engine, caller, session) = (turn.engine(), turn.caller(), &terminal.session);
    engine.recorded_up_to(caller, session, (&terminal.id, terminal.written()), PATIENCE).await?;
    let query = RecordingQuery::Cast { format: CastFormat::V2, offset, follow: false };
    let mut stream = engine.read_recording(caller, session, &terminal.id, query).await?;
    let mut lines = Vec::new();
    while let Some(piece) = stream.next().await? {
        lines.extend_from_slice(&piece);
    }
    Ok(lines)
}

/// Brings the workspace's copy up to date, for a call that may look at it. It is the room's own file, and a room that has made something else of it has
/// that: the engine's is not touched.
pub(super) async fn publish(turn: &mut Turn<'_>) {
    let Some(terminal) = &turn.desk.terminal else { return };
    if terminal.written() == terminal.published_of {
        return;
    }
    if let Err(problem) = bring_up_to_date(turn).await {
        tracing::debug!(slot = turn.slot.name, %problem, "a recording is not in its workspace");
    }
}

async fn bring_up_to_date(turn: &mut Turn<'_>) -> Result<(), Problem> {
    let Some(terminal) = &turn.desk.terminal else { return Ok(()) };
    let (written, mut published, session) =
        (terminal.written(), terminal.published, terminal.session.clone());
    if published > 0 {
        let path = FilePath { path: NAME.into(), root: false };
        let is_as_left = turn.files(&session).stat(path).await.is_ok_and(|info| info.size == published);
        published = if is_as_left { published } else { 0 };
    }
    let lines = read(turn, published).await?;
    if !lines.is_empty() {
        let more = lines.len() as u64;
        write(turn, NAME.into(), Bytes::from(lines), published > 0).await?;
        published += more;
    }
    if let Some(terminal) = &mut turn.desk.terminal {
        (terminal.published, terminal.published_of) = (published, written);
    }
    Ok(())
}
