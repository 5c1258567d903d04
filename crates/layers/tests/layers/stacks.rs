//! Rooms over layers that other rooms have written.

use crate::support::{Said, Stage, Test, quietly};
use std::os::unix::fs::FileTypeExt;
use workroom_types::RoomUser;

pub(crate) const TESTS: &[Test] = &[
    ("a_room_goes_on_from_frozen_layers", a_room_goes_on_from_frozen_layers),
    ("a_stack_is_deep_and_not_too_deep", a_stack_is_deep_and_not_too_deep),
];

fn a_room_goes_on_from_frozen_layers(stage: &Stage) {
    let (first, second, top) = (stage.layer("first"), stage.layer("second"), stage.layer("top"));
    quietly(stage.script(
        &[],
        &first,
        "echo first >kept; echo first >changed; echo first >gone; mkdir -p dir/sub whole; echo in >dir/sub/file
         echo old >whole/old",
    ));
    quietly(stage.script(
        &[&first],
        &second,
        "echo second >changed; rm gone; rm -r whole; mkdir whole; echo new >whole/new",
    ));
    let stack = [first.as_path(), second.as_path()];
    let seen =
        stage.script(&stack, &top, "cat kept changed dir/sub/file; ls; ls whole; id -u; stat -c %U kept");
    assert_eq!(seen.text, "first\nsecond\nin\nchanged\ndir\nkept\nwhole\nnew\n1000\nagent\n");

    // Overwriting goes to the top alone, deleting leaves a mark there.
    quietly(stage.script(&stack, &top, "echo top >kept; rm changed"));
    let file = |layer: &std::path::Path, name: &str| layer.join("fs/workspace").join(name);
    assert_eq!(std::fs::read_to_string(file(&first, "kept")).unwrap(), "first\n");
    assert_eq!(std::fs::read_to_string(file(&top, "kept")).unwrap(), "top\n");
    assert!(file(&top, "changed").symlink_metadata().unwrap().file_type().is_char_device());
    assert_eq!(stage.script(&stack, &top, "cat kept; cat changed 2>&1; ls whole").text.lines().count(), 3);

    // A directory of a lower layer is renamed by a redirect, where those can be.
    let renamed = stage.script(&stack, &top, "python3 -c 'import os; os.rename(\"dir\", \"moved\")' 2>&1 | grep -o 'Errno 18'; cat moved/sub/file dir/sub/file 2>/dev/null");
    assert_eq!(renamed.text, if stage.is_root { "in\n" } else { "Errno 18\nin\n" });
    assert_eq!(
        stage.script_as(RoomUser::Root, &stack, &top, "touch /root/x && ls /root").unwrap().text,
        "x\n"
    );
}

fn a_stack_is_deep_and_not_too_deep(stage: &Stage) {
    let mut lowers: Vec<std::path::PathBuf> = Vec::new();
    for number in 0..64 {
        let layer = stage.layer(&format!("layer-{number}"));
        if number % 21 == 0 {
            let below: Vec<_> = lowers.iter().map(|lower| lower.as_path()).collect();
            quietly(stage.script(
                &below,
                &layer,
                &format!("echo {number} >file-{number}; echo {number} >last"),
            ));
        }
        lowers.push(layer);
    }
    let top = stage.layer("top");
    let mut below: Vec<_> = lowers.iter().map(|lower| lower.as_path()).collect();
    let seen = stage.script(&below, &top, "ls; cat last");
    assert_eq!(seen, Said { status: 0, text: "file-0\nfile-21\nfile-42\nfile-63\nlast\n63\n".into() });
    below.push(&top);
    let refused = stage.script_as(RoomUser::Agent, &below, &top, "true").unwrap_err();
    assert!(refused.contains("65 layers are too many"), "{refused}");
}
