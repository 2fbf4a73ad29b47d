//! Programs that stand in for `lead-worker`: shell scripts beside a copy of `lead`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use lead::core::frame::{Envelope, Frame, Hello};

use super::run::Lead;
use super::world::World;

/// A folder with `lead` and a `lead-worker` of the test's own.
pub struct Fake {
    folder: PathBuf,
}

impl Fake {
    /// `script` is the body of a shell script; its fd 0 is the owner link.
    pub fn new(world: &World, script: &str) -> Self {
        let folder = world.root().join("bin");
        fs::create_dir_all(&folder).unwrap();
        place(Path::new(env!("CARGO_BIN_EXE_lead")), &folder.join("lead"));
        let worker = folder.join("lead-worker");
        fs::write(&worker, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&worker, fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder }
    }

    /// `lead` alone, with no `lead-worker` beside it.
    pub fn alone(world: &World) -> Self {
        let fake = Self::new(world, "");
        fs::remove_file(fake.folder.join("lead-worker")).unwrap();
        fake
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A headless run of this `lead`.
    pub fn headless<'w>(&self, world: &'w World, model: &str, prompt: &str) -> Lead<'w> {
        let args = ["-p", prompt, "--model", model, "--output-format", "json"];
        Lead::program(world, &self.folder.join("lead")).args(&args).args(&["--permission-mode", "bypassPermissions"])
    }
}

fn place(from: &Path, to: &Path) {
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).unwrap();
    }
}

/// The bytes of a `Hello` of another build, as they go over the owner link.
pub fn framed_hello(build: &str, protocol: u32) -> Vec<u8> {
    let hello = Hello { protocol, build: build.to_owned(), role: "worker".to_owned(), id: String::new() };
    let envelope = Envelope { seq: 1, re: 0, frame: Frame::Hello(hello) };
    let payload = rmp_serde::to_vec_named(&envelope).unwrap();
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend_from_slice(&payload);
    bytes
}
