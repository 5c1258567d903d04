//! The committed document is the one that the server serves.

use std::path::Path;

#[test]
fn the_committed_document_is_the_one_that_is_served() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi/v1.json");
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == workroom_server::openapi(),
        "openapi/v1.json is not what the handlers say; look at the difference after\n  \
         cargo run -- serve --print-openapi > openapi/v1.json"
    );
}
