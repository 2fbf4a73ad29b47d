//! What models cost (spec 9.1, `lead.prices`). Pure; looked up when a run's tokens are added up.
//!
//! Limits: one price per model. Where a provider asks more for long prompts, the table has the price
//! of long ones, so that a budget holds; what is shown is then too much rather than too little.

use std::collections::BTreeMap;

use super::models::without_date;
use crate::core::message::Usage;

/// USD per million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// Prompt tokens.
    pub input: f64,
    /// Tokens of replies.
    pub output: f64,
    /// Prompt tokens written to the cache.
    pub cache_write: f64,
    /// Prompt tokens read from the cache.
    pub cache_read: f64,
}

impl Price {
    /// With the provider's usual relation of cache and prompt prices.
    pub fn usual(input: f64, output: f64) -> Self {
        Self { input, output, cache_write: input * 1.25, cache_read: input * 0.1 }
    }

    /// What these tokens, and the searches that went with them, cost in USD.
    pub fn of(&self, usage: &Usage) -> f64 {
        let parts = [
            (usage.input_tokens, self.input),
            (usage.output_tokens, self.output),
            (usage.cache_creation_input_tokens, self.cache_write),
            (usage.cache_read_input_tokens, self.cache_read),
        ];
        let tokens: f64 = parts.into_iter().map(|(tokens, price)| millions(tokens) * price).sum();
        tokens + millions(usage.server_tool_use.web_search_requests) * MILLION_SEARCHES
    }
}

/// USD for a million web searches of the provider, the same with every model.
const MILLION_SEARCHES: f64 = 10_000.0;

fn millions(tokens: u64) -> f64 {
    // Exact up to 2^53 tokens.
    #[expect(clippy::cast_precision_loss, reason = "no run has so many tokens")]
    let tokens = tokens as f64;
    tokens / 1e6
}

/// Ids without their date, prices of a prompt, of a reply and of what is read from the cache: the
/// provider's list of November 2026.
const BUILT_IN: [(&str, f64, f64, f64); 23] = [
    ("claude-fable-5-2", 8.0, 40.0, 0.2),
    ("claude-fable-5-1", 10.0, 50.0, 0.25),
    ("claude-fable-5", 10.0, 50.0, 1.0),
    ("claude-opus-5-5", 4.0, 20.0, 0.2),
    ("claude-opus-5", 5.0, 25.0, 0.5),
    ("claude-opus-4-8", 5.0, 25.0, 0.5),
    ("claude-opus-4-7", 5.0, 25.0, 0.5),
    ("claude-opus-4-6", 5.0, 25.0, 0.5),
    ("claude-opus-4-5", 5.0, 25.0, 0.5),
    ("claude-opus-4-1", 15.0, 75.0, 1.5),
    ("claude-opus-4-0", 15.0, 75.0, 1.5),
    ("claude-opus-4", 15.0, 75.0, 1.5),
    ("claude-sonnet-5-5", 2.0, 10.0, 0.1),
    ("claude-sonnet-5", 2.0, 10.0, 0.2),
    ("claude-sonnet-4-6", 3.0, 15.0, 0.3),
    ("claude-sonnet-4-5", 3.0, 15.0, 0.3),
    ("claude-sonnet-4-0", 3.0, 15.0, 0.3),
    ("claude-sonnet-4", 3.0, 15.0, 0.3),
    ("claude-3-7-sonnet", 3.0, 15.0, 0.3),
    // A fifth of this for prompts of up to 100,000 tokens.
    ("claude-haiku-5-5", 0.5, 2.5, 0.05),
    ("claude-haiku-4-5", 1.0, 5.0, 0.1),
    ("claude-3-5-haiku", 0.8, 4.0, 0.08),
    ("claude-3-haiku", 0.25, 1.25, 0.03),
];

/// Prices by model id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PriceTable {
    configured: BTreeMap<String, Price>,
}

impl PriceTable {
    /// The built-in prices with `configured` on top.
    pub fn new(configured: BTreeMap<String, Price>) -> Self {
        Self { configured }
    }

    /// The price of the model `id`; an id may end with its date. None = it is not known.
    pub fn price(&self, id: &str) -> Option<Price> {
        let bare = without_date(id);
        self.configured.get(id).or_else(|| self.configured.get(bare)).copied().or_else(|| {
            let found = BUILT_IN.iter().find(|(name, ..)| *name == bare);
            found.map(|(_, input, output, cache_read)| Price {
                cache_read: *cache_read,
                ..Price::usual(*input, *output)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::message::ServerToolUsage;

    #[test]
    fn tokens_of_each_kind_have_their_price() {
        let million = 1_000_000;
        let usage = Usage {
            input_tokens: million,
            output_tokens: 2 * million,
            cache_creation_input_tokens: 4 * million,
            cache_read_input_tokens: 10 * million,
            ..Usage::default()
        };
        let cost = Price::usual(3.0, 15.0).of(&usage);
        assert!((cost - (3.0 + 30.0 + 15.0 + 3.0)).abs() < 1e-9, "{cost}");
        let own = Price { input: 1.0, output: 0.0, cache_write: 0.5, cache_read: 0.25 };
        assert!((own.of(&usage) - (1.0 + 2.0 + 2.5)).abs() < 1e-9);
        let searches = ServerToolUsage { web_search_requests: 5 };
        let usage = Usage { server_tool_use: searches, ..Usage::default() };
        assert!((own.of(&usage) - 0.05).abs() < 1e-9, "a cent each");
    }

    #[test]
    fn dated_ids_are_known_and_what_is_not_known_has_no_price() {
        let table = PriceTable::new(BTreeMap::from([("claude-opus-4-5".to_owned(), Price::usual(1.0, 2.0))]));
        let input = |id: &str| table.price(id).map(|p| p.input);
        assert_eq!(input("claude-sonnet-4-5"), Some(3.0));
        assert_eq!(input("claude-sonnet-4-5-20250929"), Some(3.0));
        assert_eq!(input("claude-haiku-4-5@20251001"), Some(1.0));
        assert_eq!(input("claude-opus-4-5-20251101"), Some(1.0), "the setting counts first");
        assert_eq!(input("claude-sonnet-4-9"), None, "a newer model is not priced like an older one");
        assert_eq!(input("claude-opus-5-6"), None);
        assert_eq!(input("claude-sonnet-4-5-2025"), None);
        assert_eq!(input("book.yaml"), None);
    }

    #[test]
    fn each_built_in_model_is_there_once_and_what_is_cached_costs_less() {
        for (at, (name, input, output, cache_read)) in BUILT_IN.iter().enumerate() {
            assert!(BUILT_IN[..at].iter().all(|(other, ..)| other != name), "{name}");
            assert!(cache_read < input && input < output, "{name}");
            assert_eq!(without_date(name), *name);
        }
        let read = |id: &str| PriceTable::default().price(id).map(|p| (p.cache_read, p.cache_write));
        assert_eq!(read("claude-opus-5-5"), Some((0.2, 5.0)));
        assert_eq!(read("claude-opus-5"), Some((0.5, 6.25)));
    }
}
