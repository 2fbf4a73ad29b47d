//! What a session's run costs: tokens of the main conversation and of the agents whose runs ended,
//! by model, and the budget. Pure but for one warning per model without a price.

use std::collections::{BTreeMap, HashSet};

use crate::core::message::Usage;
use crate::settings::models::{ModelTable, Provider};
use crate::settings::prices::PriceTable;

/// Tokens and cost of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelUse {
    /// Its id.
    pub id: String,
    /// Tokens.
    pub usage: Usage,
    /// USD.
    pub cost_usd: f64,
    /// Context window, tokens.
    pub window: u64,
    /// Most tokens of a reply.
    pub max_tokens: u32,
}

/// Adds up.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    prices: PriceTable,
    models: ModelTable,
    budget_usd: Option<f64>,
    agents: BTreeMap<String, Usage>,
    unpriced: HashSet<String>,
}

impl Ledger {
    pub(super) fn new(prices: PriceTable, models: ModelTable, budget_usd: Option<f64>) -> Self {
        Self { prices, models, budget_usd, ..Self::default() }
    }

    /// Counts the run of an agent; `model` is with provider prefix.
    pub(super) fn add_agent(&mut self, model: &str, usage: &Usage) {
        self.agents.entry(model.to_owned()).or_default().add(usage);
    }

    /// All of it, with what the main conversation used so far.
    pub(super) fn rows(&mut self, own: BTreeMap<String, Usage>) -> Vec<ModelUse> {
        let mut all = self.agents.clone();
        for (model, usage) in own {
            all.entry(model).or_default().add(&usage);
        }
        all.iter().map(|(model, usage)| self.row(model, usage)).collect()
    }

    fn row(&mut self, model: &str, usage: &Usage) -> ModelUse {
        let id = model.split_once(':').map_or(model, |(_, id)| id).to_owned();
        let resolved = self.models.resolve(model).ok();
        let price = self.prices.price(&id);
        // Nobody pays for a playbook; but with a budget it has to be known that it can't be kept.
        let is_paid = resolved.as_ref().is_none_or(|m| m.provider != Provider::Playbook) || self.budget_usd.is_some();
        if price.is_none() && is_paid && *usage != Usage::default() && self.unpriced.insert(id.clone()) {
            tracing::warn!(
                "the price of the model {id} is not known, it counts as 0 USD; the setting lead.prices sets it"
            );
        }
        ModelUse {
            cost_usd: price.map_or(0.0, |price| price.of(usage)),
            usage: *usage,
            window: resolved.as_ref().map_or(0, |m| m.window),
            max_tokens: resolved.as_ref().map_or(0, |m| m.max_tokens),
            id,
        }
    }

    /// In words, if more was spent than is permitted.
    pub(super) fn overdrawn(&mut self, own: impl FnOnce() -> BTreeMap<String, Usage>) -> Option<String> {
        let budget = self.budget_usd?;
        let spent: f64 = self.rows(own()).iter().map(|row| row.cost_usd).sum();
        (spent > budget).then(|| format!("the budget of {budget} USD is used up: {spent:.4} USD (--max-budget-usd)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(output_tokens: u64) -> Usage {
        Usage { output_tokens, ..Usage::default() }
    }

    fn own(output_tokens: u64) -> BTreeMap<String, Usage> {
        BTreeMap::from([("anthropic:claude-sonnet-4-5".to_owned(), tokens(output_tokens))])
    }

    fn ledger(budget: Option<f64>) -> Ledger {
        Ledger::new(PriceTable::default(), ModelTable::default(), budget)
    }

    #[test]
    fn agents_count_under_their_own_model() {
        let mut ledger = ledger(None);
        ledger.add_agent("anthropic:claude-sonnet-4-5", &tokens(1));
        ledger.add_agent("anthropic:claude-haiku-4-5", &tokens(1_000_000));
        ledger.add_agent("anthropic:claude-haiku-4-5", &tokens(1_000_000));
        let rows = ledger.rows(own(9));
        let of = |id: &str| rows.iter().find(|r| r.id == id).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(of("claude-sonnet-4-5").usage.output_tokens, 10);
        assert!((of("claude-haiku-4-5").cost_usd - 10.0).abs() < 1e-9);
        assert_eq!(of("claude-haiku-4-5").window, 200_000);
    }

    #[test]
    fn the_budget_may_be_used_up_and_not_exceeded() {
        let mut ledger = ledger(Some(15.0));
        assert_eq!(ledger.overdrawn(|| own(1_000_000)), None);
        assert!(ledger.overdrawn(|| own(1_000_001)).is_some_and(|why| why.contains("--max-budget-usd")));
        ledger.add_agent("anthropic:claude-haiku-4-5", &tokens(1));
        assert!(ledger.overdrawn(|| own(1_000_000)).is_some(), "agents spend the same budget");
        assert_eq!(Ledger::default().overdrawn(|| own(u64::from(u32::MAX))), None);
    }

    #[test]
    fn an_unknown_price_is_nothing_and_said_once() {
        let mut ledger = ledger(None);
        ledger.add_agent("anthropic:claude-new-1", &tokens(5));
        for _ in 0..2 {
            assert!(ledger.rows(own(1)).iter().any(|r| r.id == "claude-new-1" && r.cost_usd == 0.0));
        }
        assert_eq!(ledger.unpriced.len(), 1);
    }
}
