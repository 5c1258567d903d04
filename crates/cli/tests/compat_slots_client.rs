//! A client in another language, which knows nothing of this project, plays trajectories against slots.

mod slots;

use slots::Slots;
use std::process::Command;
use workroom_testkit::for_each_user;

const TRAINER: &str = include_str!("slots/trainer.py");

#[test]
fn a_trainer_plays_its_trajectories() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("skipped: python3 is not installed");
        return;
    }
    for_each_user(async |user| {
        let slots = Slots::of(user, 4);
        let address = format!("http://{}", slots.server.address());
        let played = tokio::task::spawn_blocking(move || {
            Command::new("timeout").args(["120", "python3", "-c", TRAINER, &address]).output()
        });
        let output = played.await.expect("a thread").expect("python3");
        let (said, complained) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{said}\n{complained}");
        assert_eq!(said.trim(), "played 4");
    });
}
