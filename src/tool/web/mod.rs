//! `WebFetch`: the text of a web page.
//!
//! - [`WebFetch`] is the tool: what it takes and what the model is told.
//! - `page` fetches: redirects, types, sizes. `address` reads and joins URLs. `charset` decodes.
//! - `markdown` turns HTML into text.
//!
//! Limits: GET over HTTP/1.1, no cookies, no scripts, no forms. Plain http goes without a proxy.
//! Which hosts may be asked is a matter of permissions (`WebFetch(domain:x)`), also for this machine
//! and private networks.

mod address;
mod charset;
mod fetch;
mod markdown;
mod page;
#[cfg(test)]
mod tests;

pub use fetch::WebFetch;
