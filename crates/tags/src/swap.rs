//! Byte orders.

/// Copies elements of so many bytes (1, 2, 4, 8 or 16), each with its bytes the other way round. Both
/// have the same length, a multiple of the element's; else it is a panic.
pub fn swap(element_bytes: usize, source: &[u8], target: &mut [u8]) {
    assert_eq!(source.len(), target.len(), "elements are swapped from one buffer to another as long");
    assert!(source.len().is_multiple_of(element_bytes), "no part of an element is swapped");
    #[cfg(target_arch = "x86_64")]
    if let Some(done) = x86::swap(element_bytes, source, target) {
        // The rest is less than what a register holds.
        return each(element_bytes, &source[done..], &mut target[done..]);
    }
    each(element_bytes, source, target);
}

fn each(element_bytes: usize, source: &[u8], target: &mut [u8]) {
    match element_bytes {
        2 => elements::<2>(source, target),
        4 => elements::<4>(source, target),
        8 => elements::<8>(source, target),
        16 => elements::<16>(source, target),
        _ => target.copy_from_slice(source),
    }
}

fn elements<const BYTES: usize>(source: &[u8], target: &mut [u8]) {
    let (source, target) = (source.as_chunks::<BYTES>().0, target.as_chunks_mut::<BYTES>().0);
    for (from, to) in source.iter().zip(target) {
        let mut element = *from;
        element.reverse();
        *to = element;
    }
}

/// With registers of 32 bytes.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, _mm_sfence, _mm256_loadu_si256, _mm256_shuffle_epi8, _mm256_storeu_si256,
        _mm256_stream_si256,
    };

    const REGISTER: usize = 32;
    /// What is larger than the caches goes past them, as memcpy's does.
    const LARGE: usize = 4 << 20;

    /// Swaps as many bytes as fit in whole registers, and gives how many; `None`: this processor
    /// cannot, or there is nothing to swap.
    pub(super) fn swap(element_bytes: usize, source: &[u8], target: &mut [u8]) -> Option<usize> {
        if !matches!(element_bytes, 2 | 4 | 8 | 16) || !std::arch::is_x86_feature_detected!("avx2") {
            return None;
        }
        // Which byte comes where, within each half of a register.
        let order: [u8; REGISTER] = std::array::from_fn(|at| ((at % 16) ^ (element_bytes - 1)) as u8);
        let aligned = target.as_ptr().addr().is_multiple_of(REGISTER);
        // SAFETY: the processor has AVX2.
        unsafe {
            match source.len() >= LARGE && aligned {
                true => stream(&order, source, target),
                false => store(&order, source, target),
            }
        }
        Some(source.len() / REGISTER * REGISTER)
    }

    #[target_feature(enable = "avx2")]
    fn store(order: &[u8; REGISTER], source: &[u8], target: &mut [u8]) {
        let order = load(order);
        let registers = source.as_chunks::<REGISTER>().0.iter();
        for (from, to) in registers.zip(target.as_chunks_mut::<REGISTER>().0) {
            let swapped = _mm256_shuffle_epi8(load(from), order);
            // SAFETY: the place has as many bytes; it need not be aligned.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast::<__m256i>(), swapped) };
        }
    }

    #[target_feature(enable = "avx2")]
    fn stream(order: &[u8; REGISTER], source: &[u8], target: &mut [u8]) {
        let order = load(order);
        let registers = source.as_chunks::<REGISTER>().0.iter();
        for (from, to) in registers.zip(target.as_chunks_mut::<REGISTER>().0) {
            let swapped = _mm256_shuffle_epi8(load(from), order);
            // SAFETY: the place has as many bytes, and the caller looked that the first is aligned.
            unsafe { _mm256_stream_si256(to.as_mut_ptr().cast::<__m256i>(), swapped) };
        }
        // What went past the caches is seen before what comes next.
        _mm_sfence();
    }

    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8; REGISTER]) -> __m256i {
        // SAFETY: as many bytes are there; they need not be aligned.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast::<__m256i>()) }
    }
}
