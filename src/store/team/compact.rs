//! What a mailbox need not keep (spec 3.3). Pure: only messages that were read are ever dropped, the
//! oldest first.

use crate::core::limits;

/// What counts about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weight {
    /// Bytes.
    pub bytes: usize,
    /// Whether its receiver is done with it.
    pub is_done: bool,
    /// Whether it is for a runtime, not for a model.
    pub is_protocol: bool,
}

/// Which entries stay.
pub(super) fn kept(entries: &[Weight]) -> Vec<bool> {
    let mut keep = vec![true; entries.len()];
    let count = |is: &dyn Fn(&Weight) -> bool| entries.iter().filter(|e| is(e)).count();
    let mut done = count(&|e| e.is_done);
    let mut ordinary = count(&|e| !e.is_protocol);
    // Commas and line ends, generously.
    let size = |e: &Weight| e.bytes + 4;
    let mut bytes: usize = entries.iter().map(size).sum();
    for (entry, keep) in entries.iter().zip(&mut keep).filter(|(e, _)| e.is_done) {
        let too_many_done = done > limits::MAILBOX_READ;
        let too_many = ordinary > limits::MAILBOX_ORDINARY && !entry.is_protocol;
        if too_many_done || too_many || bytes > limits::MAILBOX_COMPACT_BYTES {
            *keep = false;
            done -= 1;
            ordinary -= usize::from(!entry.is_protocol);
            bytes -= size(entry);
        }
    }
    keep
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const READ: Weight = Weight { bytes: 100, is_done: true, is_protocol: false };
    const UNREAD: Weight = Weight { is_done: false, ..READ };

    fn dropped(entries: &[Weight]) -> usize {
        let keep = kept(entries);
        let dropped = keep.iter().filter(|k| !**k).count();
        let oldest: Vec<bool> = entries.iter().zip(&keep).filter(|(e, _)| e.is_done).map(|(_, k)| *k).collect();
        assert!(oldest.is_sorted(), "the oldest of those that were read");
        dropped
    }

    #[test]
    fn r023_read_messages_are_dropped_beyond_their_number() {
        assert_eq!(dropped(&vec![READ; limits::MAILBOX_READ]), 0);
        assert_eq!(dropped(&vec![READ; limits::MAILBOX_READ + 1]), 1);
        let protocol = Weight { is_protocol: true, ..READ };
        assert_eq!(dropped(&[vec![protocol; 150], vec![READ; 51]].concat()), 1);
    }

    #[test]
    fn r023_ordinary_messages_are_dropped_beyond_their_number_if_read() {
        let full = [vec![READ; 5], vec![UNREAD; limits::MAILBOX_ORDINARY - 5]].concat();
        assert_eq!(dropped(&full), 0);
        assert_eq!(dropped(&[full.clone(), vec![UNREAD; 3]].concat()), 3);
        assert_eq!(dropped(&[full, vec![UNREAD; 30]].concat()), 5, "no more than were read");
        assert_eq!(dropped(&vec![UNREAD; limits::MAILBOX_ORDINARY + 9]), 0);
        let unread_protocol = Weight { is_protocol: true, ..UNREAD };
        assert_eq!(dropped(&[vec![READ; 5], vec![unread_protocol; limits::MAILBOX_ORDINARY]].concat()), 0);
    }

    #[test]
    fn r023_bytes_are_brought_down_as_far_as_read_messages_go() {
        let large = Weight { bytes: (256 << 10) - 4, ..READ };
        assert_eq!(dropped(&[large; 8]), 0);
        assert_eq!(dropped(&[large; 9]), 1);
        assert_eq!(dropped(&[large; 16]), 8);
        let unread = Weight { is_done: false, ..large };
        assert_eq!(dropped(&[vec![large; 2], vec![unread; 15]].concat()), 2);
    }

    proptest! {
        #[test]
        fn what_is_unread_stays(entries in prop::collection::vec((0..70_000_usize, any::<bool>(), any::<bool>()), 0..400)) {
            let entries: Vec<Weight> = entries
                .into_iter()
                .map(|(bytes, is_done, is_protocol)| Weight { bytes, is_done, is_protocol })
                .collect();
            let keep = kept(&entries);
            prop_assert!(entries.iter().zip(&keep).all(|(e, keep)| e.is_done || *keep));
            let left: Vec<Weight> = entries.iter().zip(&keep).filter(|(_, keep)| **keep).map(|(e, _)| *e).collect();
            prop_assert!(left.iter().filter(|e| e.is_done).count() <= limits::MAILBOX_READ);
            prop_assert!(kept(&left).iter().all(|keep| *keep), "once is enough");
        }
    }
}
