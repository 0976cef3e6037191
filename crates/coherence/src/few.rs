//! A set of which there are few: sorted in one piece of memory, and none while it is empty. Every request makes and ends
//! several.

/// The set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Few<T>(Vec<T>);

impl<T> Default for Few<T> {
    fn default() -> Few<T> {
        Few(Vec::new())
    }
}

impl<T: Ord + Copy> Few<T> {
    /// Puts something in; false if it was there.
    pub fn insert(&mut self, item: T) -> bool {
        match self.0.binary_search(&item) {
            Ok(_) => false,
            Err(at) => {
                self.0.insert(at, item);
                true
            }
        }
    }

    /// Takes something out; false if it was not there.
    pub fn remove(&mut self, item: &T) -> bool {
        match self.0.binary_search(item) {
            Ok(at) => {
                self.0.remove(at);
                true
            }
            Err(_) => false,
        }
    }

    /// Whether it is in.
    pub fn contains(&self, item: &T) -> bool {
        self.0.binary_search(item).is_ok()
    }

    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_set_in_order() {
        let mut few = Few::default();
        assert_eq!([5, 1, 3, 1].map(|item| few.insert(item)), [true, true, true, false]);
        assert!(!few.insert(5) && few.insert(4) && few.remove(&1) && !few.remove(&1));
        assert!(few.contains(&3) && !few.contains(&1) && few.len() == 3 && !few.is_empty());
        assert_eq!(few.0, [3, 4, 5]);
    }
}
