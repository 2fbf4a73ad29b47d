//! The `lead` program: sessions and shell verbs.

fn main() -> std::process::ExitCode {
    lead::cli::main()
}
