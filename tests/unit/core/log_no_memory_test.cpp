// SPDX-License-Identifier: Apache-2.0
// The log where there is no memory. A program of its own: here operator new fails when it is told to.
#include <boost/test/unit_test.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/queued_log.hpp>

#include "../../../core/last_words.hpp"
#include "../../../core/log_queue.hpp"

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace {

thread_local bool has_memory = true;

} // namespace

void* operator new(std::size_t size)
{
    void* const made = has_memory ? std::malloc(size) : nullptr;
    if (made == nullptr)
        throw std::bad_alloc();
    return made;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

BOOST_AUTO_TEST_SUITE(log_no_memory_test)

using namespace verbena;

BOOST_AUTO_TEST_CASE(a_line_that_can_not_be_made_is_counted)
{
    // The first that this process hears of its log. In the journal a text is copied.
    struct stat status{};
    ::fstat(STDERR_FILENO, &status);
    ::setenv("JOURNAL_STREAM", (std::to_string(status.st_dev) + ':' + std::to_string(status.st_ino)).c_str(),
             1);
    const std::string name(1000, 'x');
    std::string text = "a line of a text\nand another line of it\n";
    has_memory = false;
    log(log_level::error, "test", "without memory", {{"name", name}});
    const std::uint64_t of_line = dropped_log_lines();
    const bool taken = write_to_log(log_level::error, std::move(text));
    detail::write_last_words("last words need no memory\n");
    has_memory = true;
    BOOST_TEST(of_line == 1U);
    BOOST_TEST(!taken);
    BOOST_TEST(dropped_log_lines() == 3U);
}

BOOST_AUTO_TEST_CASE(a_queue_takes_lines_without_memory)
{
    int ends[2];
    BOOST_REQUIRE(::pipe(ends) == 0);
    const auto queue = std::make_shared<detail::log_queue>(
        ends[1], 4096, [](std::uint64_t, std::span<char>) noexcept { return std::size_t(0); });
    queue->start();
    has_memory = false;
    const auto outcome = queue->push("line\n", false);
    const bool all = queue->flush(log_patience());
    has_memory = true;
    BOOST_TEST((outcome == detail::log_queue::outcome::queued));
    BOOST_TEST(all);
    BOOST_TEST(queue->stop(log_patience()));
    ::close(ends[0]);
    ::close(ends[1]);
}

BOOST_AUTO_TEST_SUITE_END()
