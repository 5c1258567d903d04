//! Has the linker put together what runs often (docs/decisions/0042-what-runs-often-stands-together.md).

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=image.order");
    let is = |name: &str, value: &str| var(name).is_ok_and(|it| it == value);
    // The names are those of a release build for this target.
    if !is("PROFILE", "release") || !is("TARGET", "x86_64-unknown-linux-gnu") {
        return;
    }
    let order =
        format!("--symbol-ordering-file={}/image.order", var("CARGO_MANIFEST_DIR").unwrap_or_default());
    // A name that is not there any more is passed over.
    for word in [&order, "--no-warn-symbol-ordering"] {
        println!("cargo::rustc-link-arg-bin=workroom=-Xlinker");
        println!("cargo::rustc-link-arg-bin=workroom={word}");
    }
}
