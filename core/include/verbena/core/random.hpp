// SPDX-License-Identifier: Apache-2.0
// Numbers that nobody can foresee: names of sessions, keys of hashes, where a search for a port begins.
//
// The source is injected, as the clock is. A shard has one (reactor::random()); under a seed it is the seed's, so
// that two runs of a simulation draw the same. What belongs to no shard takes a source when it is made.
#pragma once

#include <verbena/core/siphash.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

#pragma GCC visibility push(default)

namespace verbena {

/// Where random numbers come from: reactor::random() on a shard. Used by one thread at a time, unless it says
/// otherwise.
class random_source {
public:
    /// Fills all of `bytes`. Never fails.
    virtual void fill(std::span<std::byte> bytes) noexcept = 0;
    /// 64 random bits.
    std::uint64_t draw() noexcept;
    /// A key that no peer knows, for what chooses a shard, a bucket or a lane by what peers say.
    siphash_key key() noexcept;

protected:
    ~random_source() = default;
};

/// The kernel's. A system call each time, so not for each request. Stateless; one serves the whole process. Any thread.
random_source& system_random() noexcept;

/// Of a seed: for tests and simulations, never for secrets. Neighbouring seeds give unrelated numbers.
class seeded_random final : public random_source {
public:
    /// Numbers that follow from `seed` alone.
    explicit seeded_random(std::uint64_t seed) noexcept : state_(seed) {}
    void fill(std::span<std::byte> bytes) noexcept override;

private:
    std::uint64_t state_;
};

} // namespace verbena

#pragma GCC visibility pop
