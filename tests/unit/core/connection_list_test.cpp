// SPDX-License-Identifier: Apache-2.0
// Connections come and go while somebody goes through their list.
#include <boost/test/unit_test.hpp>

#include <verbena/core/net/connection_list.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(connection_list_test)

using namespace verbena;

namespace {

struct connection final : listed_connection {
    explicit connection(std::string n, connection_list* list) : name(std::move(n)) { join(list); }
    connection_report report() const override { return {1, name, "test", {}, {}, 0, ""}; }
    connection_party party() const noexcept override { return {name, 0, 0, false}; }
    void end_now() noexcept override {}
    std::string name;
};

std::string next(connection_list::reader& r)
{
    const listed_connection* const found = r.next();
    return found == nullptr ? "" : found->report().peer;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_reader_sees_each_that_stays_once)
{
    connection_list list;
    auto a = std::make_unique<connection>("a", &list);
    auto b = std::make_unique<connection>("b", &list);
    auto c = std::make_unique<connection>("c", &list);
    connection_list::reader first(list);
    connection_list::reader second(list);
    BOOST_TEST(next(first) == "a");
    b.reset(); // the next one of the first reader, behind the next one of the second
    BOOST_TEST(next(second) == "a");
    a.reset(); // behind both
    const connection d("d", &list);
    BOOST_TEST(next(first) == "c");
    c.reset(); // behind the first, and the next one of the second
    BOOST_TEST(next(first) == "d");
    BOOST_TEST(next(first) == "");
    BOOST_TEST(next(first) == "");
    BOOST_TEST(next(second) == "d");
    BOOST_TEST(next(second) == "");
}

BOOST_AUTO_TEST_CASE(readers_and_connections_may_outlive_the_list)
{
    std::optional<connection_list> list(std::in_place);
    std::optional<connection> a(std::in_place, "a", &*list);
    const connection b("b", &*list);
    connection_list::reader reader(*list);
    {
        const connection_list::reader gone(*list);
    }
    list.reset();
    BOOST_TEST(next(reader) == "");
    a->leave();
    a.reset();
    const connection nowhere("nowhere", nullptr);
}

BOOST_AUTO_TEST_SUITE_END()
