//! What was sent and is not acknowledged: as it goes on the wire, so that it can be sent again.

use commonhold_points as points;
use std::collections::VecDeque;

/// Room that is kept for the next messages when all are acknowledged.
const KEPT_BYTES: usize = 1 << 20;
/// A payload of so many bytes stays where it is; a shorter one is copied behind its message.
const OWN_BYTES: usize = 16 << 10;

/// Messages, numbered from 1.
#[derive(Default)]
pub struct Retained {
    /// All of them, one after the other, but for long payloads.
    bytes: VecDeque<u8>,
    messages: VecDeque<Message>,
    /// Bytes of long payloads.
    long_bytes: usize,
    /// Messages that are not here any more.
    acknowledged: u64,
}

struct Message {
    /// In `bytes`.
    length: u32,
    /// The long payload behind them.
    payload: Vec<u8>,
}

impl Retained {
    /// Bytes in all.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.long_bytes
    }

    /// Adds a message. Of the payload it takes the buffer, if it is long.
    pub fn push(&mut self, head: &[&[u8]], payload: &mut Vec<u8>) {
        let before = self.bytes.len();
        head.iter().for_each(|slice| self.bytes.extend(*slice));
        let payload = if payload.len() < OWN_BYTES {
            self.bytes.extend(&*payload);
            Vec::new()
        } else {
            std::mem::take(payload)
        };
        self.long_bytes += payload.len();
        let length = (self.bytes.len() - before) as u32; // a frame: far less than 4 GiB
        self.messages.push_back(Message { length, payload });
    }

    /// The messages up to that number are needed no more.
    pub fn acknowledge(&mut self, number: u64) {
        let number = number + u64::from(points::mutant("peers.forgets_too_much"));
        let done = number.saturating_sub(self.acknowledged).min(self.messages.len() as u64) as usize;
        if done == 0 {
            return;
        }
        let mut bytes = 0;
        for message in self.messages.drain(..done) {
            bytes += message.length as usize;
            self.long_bytes -= message.payload.len();
        }
        self.bytes.drain(..bytes);
        self.acknowledged += done as u64;
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_BYTES {
            self.bytes.shrink_to(KEPT_BYTES);
        }
    }

    /// All of it, in order.
    pub fn slices(&self) -> Vec<&[u8]> {
        let (first, second) = self.bytes.as_slices();
        let middle = first.len();
        let mut slices: Vec<&[u8]> = Vec::new();
        // Messages without a long payload lie one behind the other.
        let (mut from, mut to) = (0, 0);
        for message in &self.messages {
            to += message.length as usize;
            if !message.payload.is_empty() {
                slices.extend([&first[from.min(middle)..to.min(middle)], after(second, middle, from, to)]);
                slices.push(&message.payload);
                from = to;
            }
        }
        slices.extend([&first[from.min(middle)..to.min(middle)], after(second, middle, from, to)]);
        slices.retain(|slice| !slice.is_empty());
        slices
    }
}

/// What of `from..to` lies in the second part, which begins at `middle`.
fn after(second: &[u8], middle: usize, from: usize, to: usize) -> &[u8] {
    &second[from.saturating_sub(middle)..to.saturating_sub(middle)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_acknowledged_goes_and_the_rest_stays_in_order() {
        let mut retained = Retained::default();
        let message = |number: u64| vec![number as u8; (number * 37 % 900) as usize];
        let payload = |number: u64| {
            let long = if number.is_multiple_of(13) { OWN_BYTES as u64 + number } else { number % 3 };
            vec![!number as u8; long as usize]
        };
        let mut acknowledged = 0;
        for number in 1..=2000 {
            let mut behind = payload(number);
            retained.push(&[&message(number)[..], &[], &[1, 2]], &mut behind);
            assert!(behind == payload(number) || behind.is_empty());
            if number % 7 == 0 {
                acknowledged = number - number % 50;
                retained.acknowledge(acknowledged);
                retained.acknowledge(acknowledged / 2); // said before
            }
            let rest: Vec<u8> = (acknowledged + 1..=number)
                .flat_map(|number| [message(number), vec![1, 2], payload(number)].concat())
                .collect();
            assert!(retained.slices().concat() == rest && retained.bytes() == rest.len());
        }
        retained.push(&[&vec![0; 2 * KEPT_BYTES]], &mut Vec::new());
        retained.acknowledge(2001);
        assert_eq!((retained.bytes(), retained.slices().len()), (0, 0));
        assert!(retained.bytes.capacity() <= KEPT_BYTES);
    }
}
