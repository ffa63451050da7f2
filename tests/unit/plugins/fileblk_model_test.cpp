// SPDX-License-Identifier: Apache-2.0
// Random operations on devices of fileblk beside a model in memory.
#include <boost/test/unit_test.hpp>

#include "fileblk_fixture.hpp"

#include <cstring>
#include <fcntl.h>
#include <random>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(fileblk_model_test)

using namespace suite;
using fileblk::direct_mode;

namespace {

constexpr std::uint64_t size = 1 << 20;

/// A device and what must stand on it. Of what was discarded nobody knows until it is written again.
class world {
public:
    world(device& d, unsigned seed)
        : device_(d), random_(seed), model_(size), known_(size / d.options.block_size, true)
    {
    }
    void step()
    {
        const std::uint64_t block = device_.options.block_size;
        const std::uint64_t blocks = size / block;
        const std::uint64_t first = random_() % blocks;
        const std::uint64_t count = 1 + random_() % std::min<std::uint64_t>(blocks - first, 64);
        const std::uint64_t offset = first * block;
        const std::uint64_t length = count * block;
        const std::size_t shift = random_() % 8 == 0 ? 1 + random_() % 64 : 0;
        // Some transfers end early, at any byte that the way allows.
        if (random_() % 3 == 0)
            device_.ring->fates.push_back({.most = (1 + random_() % 8) * 512});
        switch (random_() % 8) {
        case 0:
        case 1:
        case 2: {
            const memory data(length, 0, shift);
            for (std::byte& b : data.get())
                b = std::byte(random_());
            BOOST_REQUIRE(device_.write(offset, data.get(), random_() % 8 == 0) == 0);
            std::memcpy(model_.data() + offset, data.get().data(), length);
            mark(first, count, true);
            break;
        }
        case 3:
            BOOST_REQUIRE(device_.run(device_.disk->write_zeroes(offset, length, random_() % 2 == 0)) == 0);
            std::memset(model_.data() + offset, 0, length);
            mark(first, count, true);
            break;
        case 4:
            BOOST_REQUIRE(device_.run(device_.disk->discard(offset, length)) == 0);
            mark(first, count, false);
            break;
        case 5:
            if (random_() % 8 == 0)
                BOOST_REQUIRE(device_.flush() == 0);
            if (random_() % 16 == 0)
                device_.open();
            break;
        default: compare(first, count, shift);
        }
        device_.ring->fates.clear();
    }
    void compare(std::uint64_t first, std::uint64_t count, std::size_t shift = 0)
    {
        const std::uint64_t block = device_.options.block_size;
        const memory data(count * block, 0x55, shift);
        BOOST_REQUIRE(device_.read(first * block, data.get()) == 0);
        check(data.get(), first, count);
    }
    void check(std::span<const std::byte> data, std::uint64_t first, std::uint64_t count)
    {
        const std::uint64_t block = device_.options.block_size;
        for (std::uint64_t i = 0; i < count; ++i) {
            const bool same =
                std::memcmp(data.data() + i * block, model_.data() + (first + i) * block, block) == 0;
            BOOST_REQUIRE_MESSAGE(same || !known_[first + i], "block " << first + i << " differs");
        }
    }

private:
    void mark(std::uint64_t first, std::uint64_t count, bool known)
    {
        std::fill_n(known_.begin() + std::ptrdiff_t(first), count, known);
    }

    device& device_;
    std::mt19937 random_;
    std::vector<std::byte> model_;
    std::vector<bool> known_;
};

} // namespace

BOOST_AUTO_TEST_CASE(a_device_is_what_was_written_to_it)
{
    for (const char* where : {"/var/tmp", "/dev/shm"}) {
        for (const auto way : {direct_mode::automatic, direct_mode::off}) {
            for (const std::uint32_t block : {512u, 4096u}) {
                for (const unsigned seed : {1u, 2u}) {
                    BOOST_TEST_CONTEXT(where << ", blocks of " << block << ", seed " << seed)
                    {
                        device d(where, way, block, size);
                        world w(d, seed);
                        for (int i = 0; i < 200; ++i)
                            w.step();
                        w.compare(0, size / block);
                        // What the file holds is the same.
                        BOOST_TEST(d.flush() == 0);
                        const int fd = ::open(d.options.path.c_str(), O_RDONLY | O_CLOEXEC);
                        std::vector<std::byte> file(size);
                        BOOST_REQUIRE((fd >= 0 && ::pread(fd, file.data(), size, 0) == ssize_t(size)));
                        ::close(fd);
                        w.check(file, 0, size / block);
                    }
                }
            }
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
