//! Teams as values: names and the files they stand for, the roster, mail, protocol messages and
//! cards, all in the shapes that other programs read and write too, and the rules about them.
//!
//! Pure. `store::team` keeps these things on disk; the lead, teammates, tools and verbs use both.
//! What other programs added to an object is kept whenever it is written again ([`Kept`]).

pub mod board;
pub mod card;
pub mod claim;
pub mod kept;
pub mod links;
pub mod list;
pub mod mail;
pub mod name;
pub mod payload;
pub mod protocol;
pub mod refusal;
pub mod roster;
pub mod shown;

pub use card::{Card, CardId, Status};
pub use kept::{Kept, Object};
pub use mail::{Letter, Mail};
pub use protocol::Protocol;
pub use refusal::Refusal;
pub use roster::{Member, Roster};
