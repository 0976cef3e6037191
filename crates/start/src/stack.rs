//! What the kernel has put at the beginning of the stack: the variables, the arguments, and the path that was executed.
//!
//! `/proc/self` says the same, and better which program this is. But the first look into it makes the kernel set up the
//! process's directory there, and take it down again at its end: 40 µs of each start, as much as all the rest here. So the
//! stack is looked at first, and whatever is not as expected is asked of `/proc/self`.

use crate::system;
use core::ffi::{CStr, c_char};

/// The kinds of auxiliary values that matter here (`<linux/auxvec.h>`).
const END: usize = 0;
const EXECUTED_PATH: usize = 31;
/// The kernel has 28 pairs on x86-64 (Linux 6.18).
const MOST_WORDS: usize = 128;
const WORD: usize = size_of::<usize>();
/// Arguments and variables are no longer as a rule. What is said to lie further away is on another stack.
const FARTHEST: usize = 4 << 20;

/// What is there.
pub struct Stack {
    /// The first of the pointers to variables.
    variables: usize,
    variable_count: usize,
    /// The first of the pointers to arguments.
    arguments: usize,
    argument_count: usize,
    strings: Strings,
}

/// Finds it, by the auxiliary values: the kernel says what they are, and they lie on the stack behind the variables, above
/// the frame of this function. None if they are not found, or if what is before them is not as the kernel leaves it.
#[inline(never)]
pub fn find() -> Option<Stack> {
    let mut room = [0; MOST_WORDS];
    // From here on it is an address like any other, not one of this array's.
    let first = core::hint::black_box(room.as_ptr_range().end as usize);
    let known = system::auxiliary_values(&mut room)?;
    let path = known.chunks_exact(2).find(|pair| pair[0] == EXECUTED_PATH)?[1];
    let end = known.chunks_exact(2).position(|pair| pair[0] == END)?;
    let known = &known[..2 * end + 2];
    let last =
        path.checked_sub(size_of_val(known)).filter(|last| (first..first + FARTHEST).contains(last))?;
    let is_there =
        |at: &usize| known.iter().enumerate().all(|(index, word)| at_word(*at + index * WORD) == *word);
    let values = (first..=last).step_by(WORD).find(is_there)?;
    let strings = Strings { first: values + size_of_val(known), path };
    let (variables, variable_count) = list_before(values, first, |word| word != 0)?;
    let (arguments, argument_count) = list_before(variables, first, |word| strings.string(word).is_some())?;
    // Before the arguments there is their number.
    let counted = at_word(arguments - WORD) == argument_count;
    counted.then_some(Stack { variables, variable_count, arguments, argument_count, strings })
}

/// A word of the stack.
fn at_word(address: usize) -> usize {
    // SAFETY: between the frame of a function that is active and the path that the kernel put at the beginning of the same stack
    // (`find` looks no further than `FARTHEST`, and only from there up to that path): it is mapped. Volatile, because these are
    // other functions' words.
    unsafe { (address as *const usize).read_volatile() }
}

/// The list of pointers that ends with a null pointer just before an address: its first, and how many they are.
fn list_before(end: usize, first: usize, is_of_it: impl Fn(usize) -> bool) -> Option<(usize, usize)> {
    let null = end - WORD;
    if at_word(null) != 0 {
        return None;
    }
    let mut begin = null;
    while begin > first + WORD && is_of_it(at_word(begin - WORD)) {
        begin -= WORD;
    }
    (begin > first + WORD).then_some((begin, (null - begin) / WORD))
}

impl Stack {
    /// The variables, `NAME=VALUE` without the zero. Not among them is what the loader has put elsewhere: glibc before 2.39 takes a
    /// copy of the value of `GLIBC_TUNABLES`.
    pub fn variables(&self) -> impl Iterator<Item = &'static [u8]> {
        self.list(self.variables, self.variable_count).map(CStr::to_bytes)
    }

    /// The lists of arguments and of variables as the kernel made them, each with a null pointer behind it, and how many variables
    /// there are.
    pub fn lists(&self) -> (*const *const c_char, *const *const c_char, usize) {
        (self.arguments as *const _, self.variables as *const _, self.variable_count)
    }

    /// The path that was executed, with its zero. It may lead by symbolic links, or be that of a script.
    pub fn executed(&self) -> Option<&'static [u8]> {
        self.strings.string(self.strings.path).map(CStr::to_bytes_with_nul)
    }

    /// Whether this may be the interpreter of a script: the kernel gives it the script's path as an argument, behind those of the
    /// interpreters between them, which may be scripts too.
    pub fn may_be_interpreter(&self) -> bool {
        let path = self.strings.string(self.strings.path);
        self.list(self.arguments, self.argument_count).skip(1).any(|argument| Some(argument) == path)
    }

    fn list(&self, first: usize, count: usize) -> impl Iterator<Item = &'static CStr> {
        (0..count).filter_map(move |index| self.strings.string(at_word(first + index * WORD)))
    }
}

/// Where the kernel has put strings.
struct Strings {
    first: usize,
    /// The last of them.
    path: usize,
}

impl Strings {
    /// The string at an address, if it is one of these.
    fn string(&self, address: usize) -> Option<&'static CStr> {
        let is_of_these = (self.first..=self.path).contains(&address);
        // SAFETY: on the stack, between the auxiliary values and the path that was executed, behind which the kernel puts nothing but
        // zeros: so it ends there at the latest, and stays for as long as the process does.
        is_of_these.then(|| unsafe { CStr::from_ptr(address as *const c_char) })
    }
}
