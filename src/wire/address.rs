//! Addresses of processes as text: `uds:` + the absolute path of a socket.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::core::limits::SOCKET_PATH_BYTES;

/// Why a text is no address that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// A scheme that this build does not speak.
    #[error("unsupported address scheme {scheme:?}: only `uds:/…` can be reached")]
    Unsupported {
        /// The scheme, with its colon.
        scheme: String,
    },
    /// Not `uds:` + an absolute path.
    #[error("{text:?} is not an address: expected `uds:` and the absolute path of a socket")]
    NotAnAddress {
        /// What was given, shortened.
        text: String,
    },
    /// The system can't bind or reach so long a path.
    #[error("the socket path {path:?} is {bytes} bytes long, over the limit of {SOCKET_PATH_BYTES}")]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
}

/// The address of the process that listens at `path`.
pub fn address(path: &Path) -> String {
    format!("uds:{}", path.display())
}

/// The socket path in `uds:/…`.
///
/// # Errors
/// Another scheme ([`AddressError::Unsupported`]), no absolute path, a path over
/// [`SOCKET_PATH_BYTES`].
pub fn parse_address(text: &str) -> Result<PathBuf, AddressError> {
    let Some(path) = text.strip_prefix("uds:") else {
        return Err(match text.split_once(':') {
            Some((scheme, _)) if is_scheme(scheme) => AddressError::Unsupported { scheme: format!("{scheme}:") },
            _ => not_an_address(text),
        });
    };
    let path = PathBuf::from(path);
    if !path.is_absolute() || text.contains('\0') {
        return Err(not_an_address(text));
    }
    check_socket_path(&path)?;
    Ok(path)
}

/// Refuses a path that is too long to be a socket's.
///
/// # Errors
/// [`AddressError::TooLong`], over [`SOCKET_PATH_BYTES`].
pub fn check_socket_path(path: &Path) -> Result<(), AddressError> {
    let bytes = path.as_os_str().as_bytes().len();
    if bytes > SOCKET_PATH_BYTES { Err(AddressError::TooLong { path: path.to_owned(), bytes }) } else { Ok(()) }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.len() <= 32
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

fn not_an_address(text: &str) -> AddressError {
    AddressError::NotAnAddress { text: crate::core::text::one_line(text, 120) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_and_others_are_named() {
        let path = Path::new("/tmp/lead-0/0123456789ab.sock");
        assert_eq!(parse_address(&address(path)).as_deref(), Ok(path));
        for (text, scheme) in [("tcp:10.0.0.1:80", "tcp:"), ("bridge:x", "bridge:"), ("unix:/tmp/x", "unix:")] {
            let error = parse_address(text);
            assert_eq!(error, Err(AddressError::Unsupported { scheme: scheme.into() }));
            assert!(error.is_err_and(|e| e.to_string().contains("unsupported") && e.to_string().contains(scheme)));
        }
        for text in ["", "researcher", "uds:", "uds:relative", "uds:/a\0b", ": x", "/tmp/x.sock", "two words: x"] {
            assert!(matches!(parse_address(text), Err(AddressError::NotAnAddress { .. })), "{text:?}");
        }
    }

    #[test]
    fn the_longest_path_passes_and_one_more_byte_names_the_limit() {
        let longest = format!("/{}", "x".repeat(SOCKET_PATH_BYTES - 1));
        assert!(parse_address(&format!("uds:{longest}")).is_ok());
        let error = parse_address(&format!("uds:{longest}x")).map_err(|e| e.to_string());
        assert!(error.is_err_and(|e| e.contains("91") && e.contains("90")));
    }
}
