//! What a member turns to next (spec 3.5), as a pure decision. Mail comes before cards, and both come
//! before rest; what its lead or a person says goes to the conversation at once and needs no decision.

/// What a member turns to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// To nothing else than what it does.
    Nothing,
    /// To its mailbox.
    ReadMail,
    /// To the board, for a card it can begin.
    TakeCard,
    /// To rest: there is nothing to do.
    Rest,
}

/// What it has to look at, and how far it is from rest.
#[derive(Clone, Debug)]
pub(super) struct Attention {
    mail: bool,
    board: bool,
    /// A look at mail, board or hooks is under way; its end is told by [`Self::looked`].
    looks: bool,
    /// It has told that it rests, and has done nothing since.
    rests: bool,
    /// Whether it takes cards. Not after a turn that failed or was cut short, until somebody says
    /// something: the next card would fare no better.
    takes_cards: bool,
}

impl Attention {
    /// One that has just begun to work, and knows nothing of mail and board.
    pub(super) fn new() -> Self {
        Self { mail: true, board: true, looks: false, rests: false, takes_cards: true }
    }

    /// Mail may have come, the board may be another.
    pub(super) fn wake(&mut self, mail: bool, board: bool) {
        self.mail |= mail;
        self.board |= board;
    }

    /// Whether a look is under way, so that it is not known yet what it turns to.
    pub(super) fn looks(&self) -> bool {
        self.looks
    }

    /// A look is over.
    pub(super) fn looked(&mut self) {
        self.looks = false;
    }

    /// Somebody said something.
    pub(super) fn told(&mut self) {
        self.takes_cards = true;
    }

    /// A turn is over.
    pub(super) fn turn_ended(&mut self, well: bool) {
        self.board = true;
        self.takes_cards = well;
    }

    /// A turn runs.
    pub(super) fn works(&mut self) {
        self.rests = false;
    }

    /// It rests from now on, unless something came up meanwhile; whether it does.
    pub(super) fn settle(&mut self, may_take: bool) -> bool {
        self.rests = !(may_take && (self.mail || (self.board && self.takes_cards)));
        self.rests
    }

    /// Decides. `is_idle`: no turn runs. `may_take`: it has a lead, or needs none, so that mail and
    /// cards are its business.
    pub(super) fn next(&mut self, is_idle: bool, may_take: bool) -> Next {
        if self.looks {
            return Next::Nothing;
        }
        let next = if may_take && self.mail {
            self.mail = false;
            Next::ReadMail
        } else if may_take && is_idle && self.takes_cards && self.board {
            self.board = false;
            Next::TakeCard
        } else if is_idle && !self.rests {
            Next::Rest
        } else {
            return Next::Nothing;
        };
        self.looks = true;
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(attention: &mut Attention, is_idle: bool, may_take: bool) -> Next {
        let next = attention.next(is_idle, may_take);
        if next != Next::Nothing {
            assert_eq!(attention.next(is_idle, may_take), Next::Nothing, "one look at a time");
            attention.looked();
        }
        next
    }

    #[test]
    fn mail_comes_before_cards_and_rest_comes_last() {
        let mut attention = Attention::new();
        assert_eq!(next(&mut attention, true, true), Next::ReadMail);
        assert_eq!(next(&mut attention, true, true), Next::TakeCard);
        assert_eq!(next(&mut attention, true, true), Next::Rest);
        assert!(attention.settle(true));
        assert_eq!(next(&mut attention, true, true), Next::Nothing);
        attention.wake(false, true);
        assert_eq!(next(&mut attention, true, true), Next::TakeCard);
        attention.wake(true, true);
        assert_eq!(next(&mut attention, true, true), Next::ReadMail);
    }

    #[test]
    fn r028_mail_is_read_in_a_turn_and_cards_are_not_taken() {
        let mut attention = Attention::new();
        assert_eq!(next(&mut attention, false, true), Next::ReadMail);
        assert_eq!(next(&mut attention, false, true), Next::Nothing);
        attention.turn_ended(true);
        assert_eq!(next(&mut attention, true, true), Next::TakeCard);
    }

    #[test]
    fn r034_it_rests_once_until_it_has_worked_again() {
        let mut attention = Attention::new();
        attention.next(true, true);
        attention.looked();
        attention.next(true, true);
        attention.looked();
        assert_eq!(next(&mut attention, true, true), Next::Rest);
        attention.wake(true, false);
        assert!(!attention.settle(true), "mail came while it asked whether it may rest");
        assert_eq!(next(&mut attention, true, true), Next::ReadMail);
        assert_eq!(next(&mut attention, true, true), Next::Rest);
        assert!(attention.settle(true));
        attention.works();
        attention.turn_ended(true);
        assert_eq!(next(&mut attention, true, true), Next::TakeCard);
        assert_eq!(next(&mut attention, true, true), Next::Rest);
    }

    #[test]
    fn r057_an_orphan_takes_neither_mail_nor_cards() {
        let mut attention = Attention::new();
        assert_eq!(next(&mut attention, false, false), Next::Nothing);
        assert_eq!(next(&mut attention, true, false), Next::Rest);
        assert!(attention.settle(false));
        assert_eq!(next(&mut attention, true, false), Next::Nothing);
        // Taken over again.
        assert_eq!(next(&mut attention, true, true), Next::ReadMail);
    }

    #[test]
    fn after_a_failed_turn_no_card_is_taken_until_somebody_says_something() {
        let mut attention = Attention::new();
        attention.next(false, true);
        attention.looked();
        attention.turn_ended(false);
        assert_eq!(next(&mut attention, true, true), Next::Rest);
        assert!(attention.settle(true));
        attention.wake(false, true);
        assert_eq!(next(&mut attention, true, true), Next::Nothing);
        attention.told();
        assert_eq!(next(&mut attention, true, true), Next::TakeCard);
    }
}
