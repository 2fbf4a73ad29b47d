//! Where this program works, as the environment says. Read once, at the start of a command.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::error::CliError;
use crate::core::env::{self, Vars};
use crate::core::paths::ConfigDir;
use crate::proc::hide_values;
use crate::store::StoreError;
use crate::store::runtime::RuntimeDir;

/// The environment at the start, and whether its secrets could be hidden.
static ENVIRONMENT: OnceLock<(Vars, bool)> = OnceLock::new();

/// Reads the environment and hides the secrets in it from whoever looks at this process (spec 5.6).
/// To be called first thing in `main`, before there is a second thread.
pub(super) fn take_environment() {
    let _ = ENVIRONMENT.get_or_init(|| (variables(), hide_values(env::names_secret).is_ok()));
}

/// Whether the secrets of this process's environment can be seen in `/proc`.
pub(super) fn shows_secrets() -> bool {
    ENVIRONMENT.get().is_some_and(|(_, is_hidden)| !is_hidden)
}

fn variables() -> Vars {
    std::env::vars_os().filter_map(|(n, v)| Some((n.into_string().ok()?, v.into_string().ok()?))).collect()
}

/// Folders and environment of this process.
#[derive(Clone, Debug)]
pub(super) struct Folders {
    /// Config folder.
    pub config: ConfigDir,
    /// Runtime folder; not checked yet.
    pub runtime: PathBuf,
    /// Home folder.
    pub home: Option<PathBuf>,
    /// Working folder, a real path.
    pub cwd: PathBuf,
    /// All variables whose names and values are text.
    pub environment: Vars,
}

impl Folders {
    /// Reads environment and working folder.
    pub(super) fn of_process() -> Result<Self, CliError> {
        let environment = ENVIRONMENT.get().map_or_else(variables, |(taken, _)| taken.clone());
        let given = |name: &str| path_of(&environment, name);
        let home = given("HOME").or_else(home_of_user);
        let config = match given(env::CONFIG_DIR) {
            Some(folder) => absolute(&folder)?,
            None => match &home {
                Some(home) => home.join(".claude"),
                None => {
                    return Err(CliError::usage("there is no home folder")
                        .with_hint(format!("set HOME, or {} to a folder for settings and sessions", env::CONFIG_DIR)));
                }
            },
        };
        let uid = nix::unistd::getuid().as_raw();
        let runtime = absolute(&RuntimeDir::default_path(given(env::RUNTIME_DIR), uid))?;
        let cwd = real_folder(Path::new("."))?;
        Ok(Self { config: ConfigDir::new(config), runtime, home, cwd, environment })
    }

    /// A variable that is set and not empty.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str()).filter(|v| !v.is_empty())
    }

    /// The runtime folder, made and checked.
    pub(super) fn open_runtime(&self) -> Result<RuntimeDir, StoreError> {
        RuntimeDir::open(&self.runtime)
    }

    /// Whether a process of this config folder wrote the registry entry with `config_dir`.
    pub(super) fn is_ours(&self, config_dir: &str) -> bool {
        let theirs = Path::new(config_dir);
        theirs == self.config.root()
            || matches!((theirs.canonicalize(), self.config.root().canonicalize()), (Ok(a), Ok(b)) if a == b)
    }
}

/// The real path of a folder that exists.
pub(super) fn real_folder(path: &Path) -> Result<PathBuf, CliError> {
    let failed = |source| CliError::Folder { path: path.to_owned(), source };
    let real = path.canonicalize().map_err(failed)?;
    if !real.is_dir() {
        return Err(failed(std::io::ErrorKind::NotADirectory.into()));
    }
    Ok(real)
}

fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(path).map_err(|source| CliError::Folder { path: path.to_owned(), source })
}

fn path_of(environment: &Vars, name: &str) -> Option<PathBuf> {
    environment.iter().find(|(n, _)| n == name).filter(|(_, v)| !v.is_empty()).map(|(_, v)| PathBuf::from(v))
}

fn home_of_user() -> Option<PathBuf> {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten()?;
    Some(user.dir).filter(|dir| dir.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_must_exist_and_be_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, b"").unwrap();
        let link = dir.path().join("l");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert_eq!(real_folder(&link).unwrap(), dir.path().canonicalize().unwrap());
        for bad in [file, dir.path().join("none")] {
            assert!(matches!(real_folder(&bad), Err(CliError::Folder { .. })), "{}", bad.display());
        }
    }
}
