//! The `lead-teammate` program: a member of a team.

fn main() -> std::process::ExitCode {
    lead::teammate::teammate_main()
}
