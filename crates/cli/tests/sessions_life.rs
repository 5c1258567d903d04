//! A session's life: made, shown, changed, started, stopped, frozen, deleted, and nothing left.

use workroom_testkit::types::SessionState;
use workroom_testkit::{Server, for_each_user};

#[test]
fn stopping_keeps_files_and_starting_brings_them_back() {
    for_each_user(async |user| {
        let server = Server::of(user);
        let session = server.session().await;
        session.says("mkdir -p a/b; echo kept > a/b/file; ln -s a/b/file link; setsid -f sleep 1000").await;
        session.stop().await;
        assert_eq!(session.state().await, SessionState::Stopped);
        assert_eq!(server.room_processes(), [], "stopping ends what ran");
        assert_eq!(session.start().await.state, SessionState::Running);
        assert_eq!(session.says("cat a/b/file link").await, "kept\nkept\n");
        session.delete().await;
        server.expect_no_leaks().await;
    });
}
