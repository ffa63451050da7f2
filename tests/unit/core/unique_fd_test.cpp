// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/core/unique_fd.hpp>

#include <fcntl.h>
#include <unistd.h>
#include <utility>

BOOST_AUTO_TEST_SUITE(unique_fd_test)

using namespace verbena;

namespace {

using first = basic_unique_fd<struct first_kind>;
using second = basic_unique_fd<struct second_kind>;

int opened() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

} // namespace

BOOST_AUTO_TEST_CASE(a_descriptor_is_closed_with_its_owner)
{
    int fd = -1;
    {
        unique_fd owner(opened());
        fd = owner.get();
        BOOST_TEST(bool(owner));
        unique_fd next(std::move(owner));
        BOOST_TEST(!owner);
        BOOST_TEST(next.get() == fd);
        BOOST_TEST(is_open(fd));
    }
    BOOST_TEST(!is_open(fd));
    unique_fd owner(opened());
    fd = owner.get();
    owner = unique_fd(opened());
    BOOST_TEST(owner.get() != fd);
    BOOST_TEST(!is_open(fd));
    const int given_away = owner.release();
    BOOST_TEST(!owner);
    BOOST_TEST(is_open(given_away));
    BOOST_TEST(::close(given_away) == 0);
}

BOOST_AUTO_TEST_CASE(each_kind_is_counted_by_itself)
{
    first one(opened());
    second other(opened());
    first more(opened());
    BOOST_TEST(first::held() == 2u);
    BOOST_TEST(second::held() == 1u);
    more = std::move(one);
    BOOST_TEST(first::held() == 1u);
    const int fd = more.release();
    BOOST_TEST(first::held() == 0u);
    more.reset(fd);
    BOOST_TEST(first::held() == 1u);
    more.reset();
    BOOST_TEST(first::held() == 0u);
    const first none;
    const first failed(-1);
    BOOST_TEST(first::held() == 0u);
    BOOST_TEST(second::held() == 1u);
}

BOOST_AUTO_TEST_SUITE_END()
