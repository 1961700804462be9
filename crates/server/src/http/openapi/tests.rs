use super::*;

#[test]
fn the_committed_description_is_this_one() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let committed = std::fs::read_to_string(file).unwrap_or_default();
    assert!(committed == text(), "write it anew: countersign openapi > docs/openapi.json");
}
