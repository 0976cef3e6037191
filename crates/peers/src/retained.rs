//! What was sent and is not acknowledged: as it goes on the wire, so that it can be sent again.

use std::collections::VecDeque;

/// Room that is kept for the next messages when all are acknowledged.
const KEPT_BYTES: usize = 1 << 20;

/// Messages, numbered from 1.
#[derive(Default)]
pub struct Retained {
    bytes: VecDeque<u8>,
    /// Of each message.
    lengths: VecDeque<u32>,
    /// Messages that are not here any more.
    acknowledged: u64,
}

impl Retained {
    /// Bytes in all.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a message.
    pub fn push(&mut self, slices: &[&[u8]]) {
        let before = self.bytes.len();
        slices.iter().for_each(|slice| self.bytes.extend(*slice));
        self.lengths.push_back((self.bytes.len() - before) as u32); // a frame: far less than 4 GiB
    }

    /// The messages up to that number are needed no more.
    pub fn acknowledge(&mut self, number: u64) {
        let done = number.saturating_sub(self.acknowledged).min(self.lengths.len() as u64) as usize;
        if done == 0 {
            return;
        }
        let bytes: usize = self.lengths.drain(..done).map(|length| length as usize).sum();
        self.bytes.drain(..bytes);
        self.acknowledged += done as u64;
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_BYTES {
            self.bytes.shrink_to(KEPT_BYTES);
        }
    }

    /// All of it, in order.
    pub fn slices(&self) -> [&[u8]; 2] {
        let (first, second) = self.bytes.as_slices();
        [first, second]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_acknowledged_goes_and_the_rest_stays_in_order() {
        let mut retained = Retained::default();
        let message = |number: u64| vec![number as u8; (number * 37 % 900) as usize];
        let mut acknowledged = 0;
        for number in 1..=2000 {
            retained.push(&[&message(number)[..], &[], &[1, 2]]);
            if number % 7 == 0 {
                acknowledged = number - number % 5;
                retained.acknowledge(acknowledged);
                retained.acknowledge(acknowledged / 2); // said before
            }
            let rest: Vec<u8> = (acknowledged + 1..=number)
                .flat_map(|number| [message(number), vec![1, 2]].concat())
                .collect();
            assert!(retained.slices().concat() == rest && retained.bytes() == rest.len());
        }
        retained.push(&[&vec![0; 2 * KEPT_BYTES]]);
        retained.acknowledge(2001);
        assert_eq!(retained.bytes(), 0);
        assert!(retained.bytes.capacity() <= KEPT_BYTES);
    }
}
