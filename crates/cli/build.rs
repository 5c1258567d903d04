//! Has the linker put together what runs often (docs/decisions/0042-what-runs-often-stands-together.md).

use std::env::var;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=image.order");
    let is = |name: &str, value: &str| var(name).is_ok_and(|it| it == value);
    // The names are those of a release build for this target.
    if !is("PROFILE", "release") || !is("TARGET", "x86_64-unknown-linux-gnu") {
        return;
    }
    // A copy that goes with what is built: clones may share a target directory, and be gone before it.
    let order = Path::new(&var("OUT_DIR").unwrap_or_default()).join("image.order");
    if let Err(error) = std::fs::copy("image.order", &order) {
        println!("cargo::warning=functions are in no order: {}: {error}", order.display());
        return;
    }
    let order = format!("--symbol-ordering-file={}", order.display());
    // A name that is not there any more is passed over.
    for word in [&order, "--no-warn-symbol-ordering"] {
        println!("cargo::rustc-link-arg-bin=workroom=-Xlinker");
        println!("cargo::rustc-link-arg-bin=workroom={word}");
    }
}
