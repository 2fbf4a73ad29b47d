//! The `lead` program.
fn main() {}
