//! Every chore of this repository behind one command.
fn main() {}
