// SPDX-License-Identifier: Apache-2.0
// Codecs made from structs: what each type looks like on the wire, and what each refuses.
#include <boost/test/unit_test.hpp>

#include "bytes.hpp"

#include <verbena/protocols/rpc/bulk.hpp>
#include <verbena/protocols/xdr/codec.hpp>

#include <cmath>
#include <limits>

BOOST_AUTO_TEST_SUITE(xdr_codec_test)

using namespace verbena;
using namespace verbena::test;

namespace {

enum class color : std::uint32_t { red = 0, green = 1, blue = 7 };
constexpr bool valid(color c) { return c == color::red || c == color::green || c == color::blue; }
enum class small : std::uint8_t { none, one };
constexpr bool valid(small s) { return s <= small::one; }
enum signed_code : std::int32_t { below = -2, zero = 0 };
constexpr bool valid(signed_code c) { return c == below || c == zero; }

struct nothing {};
struct point {
    std::int32_t x = 0;
    std::int32_t y = 0;
    friend bool operator==(const point&, const point&) = default;
};
struct outer {
    point from;
    bool fast = false;
    point to;
};
struct sixteen {
    std::uint32_t a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p;
};
struct arrays {
    std::array<std::uint32_t, 2> numbers{};
    std::array<std::byte, 5> key{};
    std::array<point, 1> points{};
};
struct with_bulk {
    xdr::text<8> name;
    rpc::bulk<1000> data;
};
struct bulk_within {
    std::uint32_t n = 0;
    with_bulk last;
};

template<class T>
std::string encoded(const T& value)
{
    std::vector<std::byte> block(xdr::max_size<T>);
    xdr::encoder out(block);
    xdr::codec<T>::encode(out, value);
    BOOST_TEST(out.ok());
    return to_hex(out.bytes());
}

// Encodes to these bytes, and these bytes decode to what encodes to them.
template<class T>
void is(const T& value, std::string_view hex)
{
    BOOST_TEST(encoded(value) == to_hex(hex));
    const auto bytes = from_hex(hex);
    xdr::decoder in(bytes);
    T back{};
    xdr::codec<T>::decode(in, back);
    BOOST_TEST(in.at_end(), hex);
    BOOST_TEST(encoded(back) == to_hex(hex));
    // Cut short, anywhere.
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        xdr::decoder part(std::span<const std::byte>(bytes).first(size));
        T none{};
        xdr::codec<T>::decode(part, none);
        BOOST_TEST(!part.ok(), size << " bytes of " << hex);
    }
}

// Says why.
template<class T>
std::string refusal(std::string_view hex)
{
    const auto bytes = from_hex(hex);
    xdr::decoder in(bytes);
    T value{};
    xdr::codec<T>::decode(in, value);
    return in.ok() ? "taken" : in.failure().context();
}

// Does not fit its type.
template<class T>
bool refused_to_encode(const T& value)
{
    std::vector<std::byte> block(4096);
    xdr::encoder out(block);
    xdr::codec<T>::encode(out, value);
    return !out.ok();
}

} // namespace

// A product that wraps around would pass for a small one.
static_assert(
    xdr::max_size<xdr::list<xdr::list<xdr::list<std::uint32_t, 0x10000>, 0x10000000>, 0x40000000>> ==
    std::numeric_limits<std::size_t>::max());

BOOST_AUTO_TEST_CASE(numbers)
{
    is<std::uint32_t>(0x01020304, "01020304");
    is<std::int32_t>(-2, "fffffffe");
    is<std::uint64_t>(0x0102030405060708, "01020304 05060708");
    is<std::int64_t>(-2, "ffffffff fffffffe");
    is<unsigned long long>(1, "00000000 00000001");
    is<std::uint16_t>(0xffff, "0000ffff");
    is<std::int16_t>(-1, "ffffffff");
    is<std::uint8_t>(255, "000000ff");
    is<std::int8_t>(-128, "ffffff80");
    is<float>(1.0F, "3f800000");
    is<double>(-2.0, "c0000000 00000000");
    is<double>(std::numeric_limits<double>::infinity(), "7ff00000 00000000");
    is<double>(std::numeric_limits<double>::quiet_NaN(), "7ff80000 00000000");
}

BOOST_AUTO_TEST_CASE(small_numbers_keep_to_their_range)
{
    const std::string rule = "number out of its type's range";
    BOOST_TEST(refusal<std::uint16_t>("00010000") == rule);
    BOOST_TEST(refusal<std::uint16_t>("ffffffff") == rule);
    BOOST_TEST(refusal<std::int16_t>("00008000") == rule);
    BOOST_TEST(refusal<std::int16_t>("ffff7fff") == rule);
    BOOST_TEST(refusal<std::uint8_t>("00000100") == rule);
    BOOST_TEST(refusal<std::int8_t>("00000080") == rule);
    BOOST_TEST(refusal<std::int8_t>("0000007f") == "taken");
}

BOOST_AUTO_TEST_CASE(a_bool_is_0_or_1)
{
    is(true, "00000001");
    is(false, "00000000");
    for (const auto* word : {"00000002", "ffffffff", "01000000"})
        BOOST_TEST(refusal<bool>(word) == "boolean is neither 0 nor 1");
}

BOOST_AUTO_TEST_CASE(an_enum_has_the_values_that_are_valid)
{
    is(color::blue, "00000007");
    is(small::one, "00000001");
    is(below, "fffffffe");
    const std::string rule = "no such value of an enum";
    BOOST_TEST(refusal<color>("00000002") == rule);
    BOOST_TEST(refusal<color>("80000000") == rule);
    BOOST_TEST(refusal<small>("00000002") == rule);
    BOOST_TEST(refusal<small>("00000101") == rule); // its low byte would be valid
    BOOST_TEST(refusal<signed_code>("ffffffff") == rule);
    BOOST_TEST(refused_to_encode(color(2)));
    BOOST_TEST(refused_to_encode(small(2)));
}

BOOST_AUTO_TEST_CASE(texts)
{
    is<xdr::text<5>>("", "00000000");
    is<xdr::text<5>>("hello", "00000005 68656c6c 6f000000");
    is<xdr::text<4>>(std::string("a\0b", 3), "00000003 61006200");
    is<xdr::text<1000>>("hello", "00000005 68656c6c 6f000000"); // on the heap
    BOOST_TEST(refusal<xdr::text<4>>("00000005 68656c6c 6f000000") == "string longer than its limit");
    BOOST_TEST(refusal<xdr::text<1000>>("000003e9") == "string longer than its limit");
    BOOST_TEST(refusal<xdr::text<4>>("ffffffff 00000000") == "string longer than its limit");
    BOOST_TEST(refusal<xdr::text<0>>("00000000") == "taken");
    BOOST_TEST(refusal<xdr::text<0>>("00000001 61000000") == "string longer than its limit");
}

BOOST_AUTO_TEST_CASE(a_text_keeps_to_its_limit)
{
    for (const bool in_place : {true, false}) {
        const auto check = [](auto text) {
            const std::string most(text.limit, 'x');
            BOOST_TEST(text.assign(most));
            BOOST_TEST(!text.assign(most + "x"));
            BOOST_TEST((text == most));
            BOOST_CHECK_THROW(decltype(text)(most + "x"), std::length_error);
            const auto copy = text;
            BOOST_TEST(text.assign("y"));
            BOOST_TEST((text == "y"));
            BOOST_TEST((copy == most));
            text = copy;
            BOOST_TEST((text == copy));
            BOOST_TEST(text.size() == most.size());
        };
        if (in_place)
            check(xdr::text<100>());
        else
            check(xdr::text<1000>());
    }
    static_assert(sizeof(xdr::text<1000>) <= 64, "held elsewhere");
    static_assert(std::is_trivially_destructible_v<xdr::text<500>>, "held in place");
}

BOOST_AUTO_TEST_CASE(opaques)
{
    const auto three = from_hex("010203");
    is<xdr::opaque<3>>(std::span<const std::byte>(three), "00000003 01020300");
    is<xdr::opaque<3>>({}, "00000000");
    BOOST_TEST(refusal<xdr::opaque<2>>("00000003 01020300") == "opaque longer than its limit");
    BOOST_TEST(refusal<xdr::opaque<3>>("00000003 010203") != "taken"); // the pad is missing
    xdr::opaque<2> two;
    BOOST_TEST(!two.assign(three));
    BOOST_CHECK_THROW(xdr::opaque<2>(std::span<const std::byte>(three)), std::length_error);
}

BOOST_AUTO_TEST_CASE(lists)
{
    using points = xdr::list<point, 2>;
    is(points(), "00000000");
    is(points{{1, 2}, {3, -1}}, "00000002 00000001 00000002 00000003 ffffffff");
    is(xdr::list<xdr::text<4>, 3>{"a", "bcd"}, "00000002 00000001 61000000 00000003 62636400");
    is(xdr::list<xdr::text<4000>, 3>{"a", "bcd"},
       "00000002 00000001 61000000 00000003 62636400"); // on the heap
    is(xdr::list<bool, 3>{true, false}, "00000002 00000001 00000000");
    BOOST_TEST(refusal<points>("00000003 00000000 00000000 00000000 00000000 00000000 00000000") ==
               "array longer than its limit");
    // More than the bytes hold: refused before any element is made.
    using many = xdr::list<std::uint64_t, 0xffffffff>;
    const auto announced = from_hex("ffffffff 00000000 00000000");
    xdr::decoder in(announced);
    many none;
    xdr::codec<many>::decode(in, none);
    BOOST_TEST(!in.ok());
    BOOST_TEST(none.empty());
    points full{{1, 1}, {2, 2}};
    BOOST_TEST(!full.try_push_back({3, 3}));
    BOOST_CHECK_THROW(full.push_back({3, 3}), std::length_error);
    BOOST_TEST(full.size() == 2u);
    BOOST_TEST((full[1] == point{2, 2}));
    BOOST_CHECK_THROW((points{{1, 1}, {2, 2}, {3, 3}}), std::length_error);
}

BOOST_AUTO_TEST_CASE(arrays_of_a_fixed_size)
{
    arrays a;
    a.numbers = {1, 2};
    for (std::size_t i = 0; i < a.key.size(); ++i)
        a.key[i] = std::byte(i + 1);
    a.points[0] = {3, 4};
    is(a, "00000001 00000002 01020304 05000000 00000003 00000004");
}

BOOST_AUTO_TEST_CASE(optionals)
{
    using maybe = std::optional<point>;
    is(maybe(), "00000000");
    is(maybe(point{1, 2}), "00000001 00000001 00000002");
    is(std::optional<std::optional<std::uint32_t>>(std::optional<std::uint32_t>()), "00000001 00000000");
    BOOST_TEST(refusal<maybe>("00000002 00000001 00000002") == "boolean is neither 0 nor 1");
    // Decoded anew, it holds nothing of before.
    maybe again = point{1, 2};
    const auto bytes = from_hex("00000000");
    xdr::decoder in(bytes);
    xdr::codec<maybe>::decode(in, again);
    BOOST_TEST(!again.has_value());
}

BOOST_AUTO_TEST_CASE(structs)
{
    is(nothing(), "");
    is(outer{{1, 2}, true, {3, 4}}, "00000001 00000002 00000001 00000003 00000004");
    is(sixteen{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
       "00000000 00000001 00000002 00000003 00000004 00000005 00000006 00000007 "
       "00000008 00000009 0000000a 0000000b 0000000c 0000000d 0000000e 0000000f");
}

// By the compiler alone.
static_assert(xdr::max_size<nothing> == 0);
static_assert(xdr::max_size<outer> == 20);
static_assert(xdr::max_size<sixteen> == 64);
static_assert(xdr::max_size<arrays> == 8 + 8 + 8);
static_assert(xdr::max_size<xdr::text<5>> == 12);
static_assert(xdr::max_size<xdr::opaque<8>> == 12);
static_assert(xdr::max_size<xdr::list<xdr::text<5>, 10>> == 124);
static_assert(xdr::max_size<std::optional<outer>> == 24);
static_assert(xdr::max_size<with_bulk> == 12 + 4); // its bytes travel beside the message
static_assert(xdr::codec<std::optional<outer>>::min_size == 4);
static_assert(xdr::codec<outer>::min_size == 20);
static_assert(xdr::payload_count<with_bulk> == 1);
static_assert(xdr::payload_count<bulk_within> == 1);
static_assert(xdr::payload_count<outer> == 0);

BOOST_AUTO_TEST_CASE(a_bulk_is_noted_for_the_transport)
{
    std::vector<std::byte> block(100);
    const std::vector<std::byte> bytes(11);
    xdr::encoder out(block);
    bulk_within value;
    value.n = 9;
    value.last.name = "ab";
    value.last.data = rpc::payload(lease(), bytes);
    xdr::codec<bulk_within>::encode(out, value);
    BOOST_TEST(to_hex(out.bytes()) == to_hex("00000009 00000002 61620000 0000000b"));
    BOOST_REQUIRE(out.payloads().size() == 1u);
    BOOST_TEST(out.payloads()[0].offset == 16u);
    BOOST_TEST(out.payloads()[0].length == 11u);
    BOOST_TEST(rpc::detail::bulk_in(value).bytes().size() == 11u);
    rpc::bulk<10> too_long = rpc::payload(lease(), bytes);
    BOOST_TEST(refused_to_encode(too_long));
}

BOOST_AUTO_TEST_CASE(a_bulk_is_decoded_where_its_bytes_are_elsewhere)
{
    const auto reduced = from_hex("00000009 00000002 61620000 000003e8");
    xdr::decoder in(reduced, xdr::external_item{.position = 16, .length = 1000});
    bulk_within value;
    xdr::codec<bulk_within>::decode(in, value);
    BOOST_TEST(in.at_end());
    BOOST_TEST(value.last.data.size() == 1000u);
    BOOST_TEST(value.last.data.bytes().empty());
    // What came and was not pulled can't be sent on.
    BOOST_TEST(refused_to_encode(value));
    BOOST_TEST(refusal<with_bulk>("00000000 000003e9") == "opaque longer than its limit");
    // Another member in a chunk.
    xdr::decoder odd(reduced, xdr::external_item{.position = 8, .length = 4});
    xdr::codec<bulk_within>::decode(odd, value);
    BOOST_TEST(!odd.ok());
}

// What no message is long enough for stays the largest number. These run when the program is compiled, and here once more.
BOOST_AUTO_TEST_CASE(sizes_that_no_number_holds)
{
    namespace d = xdr::detail;
    std::size_t large = SIZE_MAX - 1;
    BOOST_TEST(d::saturated_sum(large, 1) == SIZE_MAX);
    BOOST_TEST(d::saturated_sum(large, 2) == SIZE_MAX);
    BOOST_TEST(d::saturated_product(large, 1) == large);
    BOOST_TEST(d::saturated_product(large / 2, 3) == SIZE_MAX);
    BOOST_TEST(d::saturated({large, 0, 5}) == SIZE_MAX);
    BOOST_TEST(d::saturated({1, 2, 3}) == 6u);
    BOOST_TEST(d::count_payloads<with_bulk>() == 1u);
    BOOST_TEST(d::count_payloads<std::uint32_t>() == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
