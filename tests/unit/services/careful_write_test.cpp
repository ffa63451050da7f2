// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include "service/careful_write.hpp"

#include <verbena/core/net/net.hpp>

#include <csignal>
#include <fcntl.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(careful_write_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

struct both_ends {
    explicit both_ends(bool pipe)
    {
        int ends[2];
        BOOST_REQUIRE((pipe ? ::pipe2(ends, O_CLOEXEC) : ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) == 0);
        reads.reset(ends[0]);
        writes.reset(ends[1]);
    }
    net::unique_fd reads, writes;
};

const std::string much(1 << 20, 'x');

} // namespace

BOOST_AUTO_TEST_CASE(a_pipe_that_nobody_reads_keeps_room_for_others)
{
    const both_ends pipe(true);
    for (const int size : {4096, 65536}) {
        BOOST_REQUIRE(::fcntl(pipe.writes.get(), F_SETPIPE_SZ, size) == size);
        services::write_carefully(pipe.writes.get(), much, 0ms);
        int unread = 0;
        BOOST_REQUIRE(::ioctl(pipe.reads.get(), FIONREAD, &unread) == 0);
        BOOST_TEST(unread == size / 2);
        BOOST_TEST(services::write_carefully(pipe.writes.get(), much, 0ms) == 0U);
        BOOST_TEST(::write(pipe.writes.get(), much.data(), 1000) == 1000); // a log line, which would wait
        std::string drained(65536, ' ');
        BOOST_TEST(::read(pipe.reads.get(), drained.data(), drained.size()) == size / 2 + 1000);
    }
}

BOOST_AUTO_TEST_CASE(a_socket_that_nobody_reads_keeps_nobody)
{
    const both_ends socket(false);
    const std::size_t taken = services::write_carefully(socket.writes.get(), much, 0ms);
    BOOST_TEST(taken > 0U);
    BOOST_TEST(taken < much.size());
}

BOOST_AUTO_TEST_CASE(whoever_reads_gets_all)
{
    for (const bool pipe : {true, false}) {
        both_ends ends(pipe);
        std::size_t got = 0;
        std::thread reader([&] {
            std::string part(8192, ' ');
            while (const ssize_t n = ::read(ends.reads.get(), part.data(), part.size())) {
                if (n < 0)
                    break;
                got += static_cast<std::size_t>(n);
            }
        });
        BOOST_TEST(services::write_carefully(ends.writes.get(), much, 60s) == much.size());
        ends.writes.reset();
        reader.join();
        BOOST_TEST(got == much.size());
    }
}

BOOST_AUTO_TEST_CASE(a_reader_that_is_gone_ends_it)
{
    const auto before = std::signal(SIGPIPE, SIG_IGN);
    both_ends pipe(true);
    pipe.reads.reset();
    BOOST_TEST(services::write_carefully(pipe.writes.get(), much, 60s) == 0U);
    std::signal(SIGPIPE, before);
}

BOOST_AUTO_TEST_SUITE_END()
