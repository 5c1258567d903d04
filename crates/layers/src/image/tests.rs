//! What is written is an ext4 file system to those who know it best: its own checker, and the kernel.

use super::*;
use std::process::Command;

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("workroom-image-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    dir
}

const SIZES: [ImageSize; 6] = [
    ImageSize { bytes: 1, inodes: 1 },
    ImageSize { bytes: 1 << 20, inodes: 64 },
    ImageSize { bytes: 100 << 20, inodes: 25_600 },
    ImageSize { bytes: 1 << 30, inodes: 262_144 },
    ImageSize { bytes: 5 << 30, inodes: 1_300_000 },
    ImageSize { bytes: 60 << 30, inodes: 100 },
];

/// The same with as many inodes as fill their tables: the checker holds those that are marked as taken for lost.
fn round(size: ImageSize) -> ImageSize {
    let mut round = size;
    for _ in 0..4 {
        let groups = length_for(round).div_ceil(128 << 20);
        round.inodes = (size.inodes + 16).next_multiple_of(16 * groups) - 16;
    }
    round
}

#[test]
fn the_checker_of_such_file_systems_finds_nothing_wrong_and_little_is_written() {
    use std::os::unix::fs::MetadataExt;
    for (number, size) in SIZES.into_iter().map(round).enumerate() {
        let dir = scratch(&format!("checked{number}"));
        make_image(&dir, size, 0x7fff_0000).expect("an image");
        assert!(is_image(&dir));
        assert_eq!(image_length(&dir), Some(length_for(size)));
        let meta = std::fs::metadata(dir.join(IMAGE)).expect("it is there");
        assert!(meta.blocks() * 512 < 32 << 20, "{size:?} takes {} bytes", meta.blocks() * 512);
        if let Ok(checked) = Command::new("/sbin/e2fsck").args(["-fn"]).arg(dir.join(IMAGE)).output() {
            let said = String::from_utf8_lossy(&checked.stdout).into_owned();
            assert!(checked.status.success(), "{size:?}: {said}");
        }
        std::fs::remove_dir_all(dir).expect("removed");
    }
}

#[test]
fn there_is_as_much_space_as_was_asked_for_and_all_who_mount_it_see_the_same() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for (number, size) in SIZES.into_iter().take(4).enumerate() {
        let dir = scratch(&format!("mounted{number}"));
        make_image(&dir, size, 0).expect("an image");
        let (one, other) = (mount_image(&dir).expect("a mount"), mount_image(&dir).expect("another"));
        let space = rustix::fs::fstatvfs(&one).expect("its size");
        assert!(
            space.f_bavail * space.f_frsize >= size.bytes,
            "{size:?}: {} {}",
            space.f_bavail * space.f_frsize,
            space.f_ffree
        );
        assert!(
            space.f_bavail * space.f_frsize < size.bytes + (20 << 20),
            "{size:?}: {} {}",
            space.f_bavail * space.f_frsize,
            space.f_ffree
        );
        assert!(
            space.f_ffree >= size.inodes,
            "{size:?}: {} {}",
            space.f_bavail * space.f_frsize,
            space.f_ffree
        );
        rustix::fs::mkdirat(&one, "fs/made", Mode::RWXU).expect("a directory");
        assert!(rustix::fs::statat(&other, "fs/made", rustix::fs::AtFlags::empty()).is_ok());
        drop((one, other));
        let again = mount_image(&dir).expect("a mount");
        assert!(rustix::fs::statat(&again, "fs/made", rustix::fs::AtFlags::empty()).is_ok());
        drop(again);
        std::fs::remove_dir_all(dir).expect("removed");
    }
}

#[test]
fn what_it_holds_is_taken_on_every_kernel() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = scratch("taken");
    make_image(&dir, SIZES[1], 0).expect("an image");
    let mount = mount_image(&dir).expect("a mount");
    rustix::fs::mkdirat(&mount, "fs/made", Mode::RWXU).expect("a directory");
    let has_it = |tree: &OwnedFd| rustix::fs::statat(tree, "made", rustix::fs::AtFlags::empty()).is_ok();
    assert!(has_it(&take_files(&dir).expect("taken")));
    // In a thread, which keeps the namespace to itself.
    let place = dir.clone();
    let by_place = std::thread::spawn(move || take_from_place(mount, &place).map(|tree| has_it(&tree)));
    assert!(by_place.join().expect("it ended").expect("taken"));
    assert!(dir.join(IMAGE).exists(), "and nobody else sees it");
    std::fs::remove_dir_all(dir).expect("removed");
}
