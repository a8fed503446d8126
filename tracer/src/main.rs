//! The `gpustall` command.
fn main() {}
