//! A room that swaps directories for links while the clerk works: nothing outside is read or changed.
#![allow(clippy::disallowed_methods, reason = "the swapping is done by a thread of the test")]

use super::scratch::{Scratch, path};
use super::{change, delete, edit, list, read, write};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::sync::atomic::{AtomicBool, Ordering};
use workroom_proto::NewFile;
use workroom_types::{EditFile, ListFiles, MakeDirectory, ReadFile};

#[test]
fn a_directory_that_is_a_link_every_other_moment_leads_nowhere() {
    let scratch = Scratch::new();
    scratch.mkdir("swap/deeper");
    scratch.write("swap/secret", "inside");
    scratch.link(scratch.outside(""), "link");
    let ended = AtomicBool::new(false);
    let swapped = std::thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            let (one, other) = (scratch.inside("swap"), scratch.inside("link"));
            let mut swapped = 0u64;
            while !ended.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                swapped += 1;
            }
            swapped
        });
        let found = work(&scratch);
        ended.store(true, Ordering::Relaxed);
        let swapped = swapper.join().unwrap();
        assert!(found > 100, "the directory was met {found} times only");
        swapped
    });
    assert!(swapped > 1000, "swapped {swapped} times only");
    assert!(scratch.outside_is_untouched());
}

/// Twenty thousand operations below the name that changes; says how many of them reached the directory.
fn work(scratch: &Scratch) -> u64 {
    let base = scratch.base();
    let mut reached = 0;
    for turn in 0..2000 {
        let secret = path("swap/secret");
        if let Ok(content) = read::read(&base, &secret, &ReadFile::default()) {
            assert_eq!(content.content, "inside");
            reached += 1;
        }
        let new = path(&format!("swap/deeper/new-{turn}"));
        if let Ok(pending) = write::create(&base, new.clone(), NewFile::default()) {
            reached += u64::from(write::commit(&base, pending).is_ok());
        }
        let appended = NewFile { append: true, ..NewFile::default() };
        if let Ok(pending) = write::create(&base, new.clone(), appended) {
            let _ = write::commit(&base, pending);
        }
        let made = path(&format!("swap/deeper/made-{turn}/below"));
        reached += u64::from(change::make_directory(&base, &made, &MakeDirectory::default()).is_ok());
        let moved = path(&format!("swap/deeper/moved-{turn}"));
        let _ = change::rename(&base, &new, &moved, false);
        let _ = change::copy(&base, &secret, &path(&format!("swap/deeper/copy-{turn}")), false);
        let _ = edit::edit(
            &base,
            &secret,
            &EditFile { old: "secret".into(), new: "changed".into(), ..EditFile::default() },
        );
        if let Ok(listed) = list::list(&base, &path("swap"), &ListFiles::default()) {
            assert!(listed.entries.len() <= 2);
        }
        let _ = delete::delete(&base, &moved, false);
        let _ = delete::delete(&base, &path("swap/deeper"), true);
    }
    reached
}
