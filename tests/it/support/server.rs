//! `lead model serve --strict` as a process, and runs that use it as their provider.

use std::net::TcpListener;

use nix::sys::signal::Signal;

use super::playbook::Book;
use super::run::{Lead, Running};
use super::wait::eventually;
use super::world::World;

/// The key that runs against a server prove themselves with; nothing may show it.
pub const KEY: &str = "sk-test-4711-secret";

/// The model that runs against a server ask for: a full id, so that its price and window stay.
pub const MODEL: &str = "claude-sonnet-4-5";

/// Repetitions that wait for next to nothing.
const QUICK_RETRY: &str = r#"{"lead":{"retry":{"base":"1ms","cap":"5ms"}}}"#;

/// A served playbook.
pub struct Server {
    running: Option<Running>,
    url: String,
}

impl Server {
    /// Serves `book` on a free port.
    pub fn start(world: &World, book: &Book) -> Self {
        Self::on_port(world, book, 0)
    }

    /// Serves `book` on this port.
    pub fn on_port(world: &World, book: &Book, port: u16) -> Self {
        Self::of_file(world, &book.file(), port)
    }

    /// Serves a playbook file, such as one that does not record what it is asked.
    pub fn of_file(world: &World, path: &str, port: u16) -> Self {
        let port = port.to_string();
        let args = ["model", "serve", "--strict", "--port", &port, "--playbook", path];
        let running = world.lead(&args).start();
        let url = eventually("the server's address", || {
            let said = running.stdout();
            said.split_once('\n').map(|(url, _)| url.to_owned()).ok_or_else(|| (said, running.stderr()))
        });
        Self { running: Some(running), url }
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A headless run that uses it; everything is permitted, the result comes as JSON.
    pub fn headless<'w>(&self, world: &'w World, prompt: &str) -> Lead<'w> {
        against(world, &self.url, MODEL, prompt)
    }

    /// The same, with a stream as its output.
    pub fn streaming<'w>(&self, world: &'w World, prompt: &str) -> Lead<'w> {
        let args = ["-p", prompt, "--model", MODEL, "--output-format", "stream-json"];
        provided(world, &self.url, world.lead(&args).args(&["--permission-mode", "bypassPermissions"]))
    }
}

/// A headless run whose provider is at `url`. Its repetitions wait for next to nothing, unless
/// `--settings` says otherwise.
pub fn against<'w>(world: &'w World, url: &str, model: &str, prompt: &str) -> Lead<'w> {
    provided(world, url, world.headless(model, prompt))
}

fn provided<'w>(world: &World, url: &str, lead: Lead<'w>) -> Lead<'w> {
    std::fs::write(world.config().join("settings.json"), QUICK_RETRY).unwrap();
    lead.env("ANTHROPIC_BASE_URL", url).env("ANTHROPIC_API_KEY", KEY)
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        running.signal(Signal::SIGTERM);
        let done = running.wait();
        if !std::thread::panicking() {
            done.expect(143);
        }
    }
}

/// A port on which nobody listens at this moment.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
