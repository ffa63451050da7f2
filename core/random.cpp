// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/random.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <sys/random.h>

namespace verbena {

namespace {

class kernels_random final : public random_source {
public:
    void fill(std::span<std::byte> bytes) noexcept override
    {
        while (!bytes.empty()) {
            const auto n = ::getrandom(bytes.data(), bytes.size(), 0);
            if (n > 0)
                bytes = bytes.subspan(static_cast<std::size_t>(n));
            else if (errno != EINTR)
                return fill_by_file(bytes); // a sandbox may forbid the call
        }
    }

private:
    // Reads the same pool. Where that is forbidden too the process ends: it must not go on with what everybody can
    // foresee.
    static void fill_by_file(std::span<std::byte> bytes) noexcept
    {
        std::random_device device;
        for (std::byte& b : bytes)
            b = std::byte(device() & 0xff);
    }
};

} // namespace

random_source& system_random() noexcept
{
    static kernels_random one;
    return one;
}

std::uint64_t random_source::draw() noexcept
{
    std::uint64_t drawn = 0;
    fill(std::as_writable_bytes(std::span(&drawn, 1)));
    return drawn;
}

siphash_key random_source::key() noexcept
{
    siphash_key drawn;
    fill(drawn);
    return drawn;
}

// splitmix64.
void seeded_random::fill(std::span<std::byte> bytes) noexcept
{
    while (!bytes.empty()) {
        state_ += 0x9e3779b97f4a7c15;
        std::uint64_t word = state_;
        word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
        word = (word ^ word >> 27) * 0x94d049bb133111eb;
        word ^= word >> 31;
        const std::size_t size = std::min(bytes.size(), sizeof word);
        std::memcpy(bytes.data(), &word, size);
        bytes = bytes.subspan(size);
    }
}

} // namespace verbena
