// SPDX-License-Identifier: Apache-2.0
// Structs that have no bounded wire form, procedures that can't be, handlers that don't fit. ../must_not_compile_test.py says how
// this is read.
#include <verbena/clients/connect.hpp>
#include <verbena/protocols/rpc/typed_program.hpp>

#include <string>
#include <vector>

using namespace verbena;

enum class silent { ok, bad };
enum class spoken { ok, bad };
constexpr bool valid(spoken s) { return s <= spoken::bad; }
constexpr std::string_view to_string(spoken) { return "spoken"; }
#ifdef MENDED
enum loose : std::uint32_t { lax, strict };
#else
enum loose { lax, strict };
#endif
constexpr bool valid(loose s) { return s == lax || s == strict; }
enum class valid_only { ok, bad };
constexpr bool valid(valid_only s) { return s <= valid_only::bad; }

#ifdef MENDED
using words = xdr::text<100>;
using view = xdr::text<100>;
using numbers = xdr::list<int, 100>;
using span = xdr::list<int, 100>;
using pointer = std::optional<int>;
using letter = std::int8_t;
using octet = std::uint8_t;
using answer = spoken;
using many = xdr::list<std::uint64_t, 1000>;
using long_list = xdr::list<std::uint64_t, 100'000>;
using bits = xdr::list<bool, 100>;
using error_enum = spoken;
using wide = std::uint64_t;
#else
using words = std::string;
using view = std::string_view;
using numbers = std::vector<int>;
using span = std::span<int>;
using pointer = int*;
using letter = char;
using octet = std::byte;
using answer = silent;
using many = xdr::list<std::uint64_t, 10'000>;
using long_list = xdr::list<std::uint64_t, 200'000>;
using bits = xdr::list<bool, 1000>;
using error_enum = valid_only;
using wide = __int128;
#endif

struct has_words {
    words member;
};
struct has_view {
    view member;
};
struct has_numbers {
    numbers member;
};
struct has_span {
    span member;
};
struct has_pointer {
    pointer member;
};
struct has_letter {
    letter member;
};
struct has_octet {
    octet member;
};
struct has_enum {
    answer member;
};
struct has_many {
    many member;
};
struct has_long_list {
    long_list member;
};
struct two_bulks {
#ifndef MENDED
    rpc::bulk<10> one;
#endif
    rpc::bulk<10> two;
};
struct bulk_first {
#ifdef MENDED
    int member;
    rpc::bulk<10> data;
#else
    rpc::bulk<10> data;
    int member;
#endif
};
struct seventeen {
    int a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p;
#ifndef MENDED
    int q;
#endif
};
struct bulk_alone {
    rpc::bulk<10> data;
};
#ifdef MENDED
using in_a_list = bulk_alone;
#else
struct in_a_list {
    xdr::list<bulk_alone, 2> data;
};
#endif
struct has_wide {
    wide member;
};
struct has_loose {
    loose member;
};
struct empty {
#ifdef MENDED
    bool member;
#endif
};
struct many_of_nothing {
    xdr::list<empty, 10> member;
};
struct marker {};
struct base {
#ifdef MENDED
    int first;
#else
    explicit base(int n) : first(n) {}
    int first;
#endif
};
// Of anything, so that its number of members can't be told from what initialises them.
struct any {
    int value = 0;
#ifndef MENDED
    constexpr any() = default;
    template<class T>
    constexpr any(T n) : value(static_cast<int>(n))
    {
    }
#endif
};
template<>
struct verbena::xdr::codec<any> : codec<int> {
    static void encode(encoder& out, const any& a) noexcept { codec<int>::encode(out, a.value); }
    static void decode(decoder& in, any& a) noexcept { codec<int>::decode(in, a.value); }
};
#ifdef MENDED
struct marked {
#else
struct marked : marker {
#endif
    std::uint64_t key;
    std::uint64_t amount;
};
struct based : base {
#ifndef MENDED
    int second;
#endif
};
struct any_first {
    any first;
    int second;
};
#ifdef MENDED
constexpr std::uint32_t arguments_bulk = rpc::max_argument_bulk;
constexpr std::uint32_t results_bulk = rpc::max_result_bulk;
#else
constexpr std::uint32_t arguments_bulk = rpc::max_argument_bulk + 1;
constexpr std::uint32_t results_bulk = rpc::max_result_bulk + 1;
#endif
struct sends_bulk {
    int member;
    rpc::bulk<arguments_bulk> data;
};
struct gives_bulk {
    rpc::bulk<results_bulk> data;
};
struct results {
    int member;
};

constexpr auto none = rpc::effect::none;
inline constexpr rpc::program_definition p{"p", 0x20000001, 1};

template<class Args>
using takes = rpc::procedure<Args, void>;
template<class Results>
using gives = rpc::procedure<void, Results>;
template<class Error>
using fails = rpc::procedure<void, void, Error>;
using plain = takes<void>;

inline constexpr takes<has_words> p1{p, 1, "A", none};      // says: a std::string has no limit: use xdr::text
inline constexpr takes<has_view> p2{p, 2, "A", none};       // says: owns nothing: use xdr::text<N>
inline constexpr gives<has_numbers> p3{p, 3, "A", none};    // says: a std::vector has no limit: use xdr::list
inline constexpr takes<has_span> p4{p, 4, "A", none};       // says: a std::span owns nothing: use xdr::list
inline constexpr takes<has_pointer> p5{p, 5, "A", none};    // says: this type has no XDR form: use integers
inline constexpr takes<has_letter> p6{p, 6, "A", none};     // says: this type has no XDR form: use integers
inline constexpr takes<has_octet> p7{p, 7, "A", none};      // says: a std::byte alone has no XDR form
inline constexpr takes<has_enum> p8{p, 8, "A", none};       // says: write `constexpr bool valid(E e)` beside
inline constexpr takes<has_many> p9{p, 9, "A", none};       // says: or make the largest member an rpc::bulk
inline constexpr gives<has_long_list> p10{p, 9, "A", none}; // says: results of more than 1 MiB
inline constexpr takes<two_bulks> p11{p, 9, "A", none};     // says: an rpc::bulk stands last in a struct
inline constexpr takes<bulk_first> p12{p, 9, "A", none};    // says: an rpc::bulk stands last in a struct
inline constexpr takes<in_a_list> p13{p, 9, "A", none};     // says: and in no array, list or optional
inline constexpr takes<seventeen> p14{p, 9, "A", none};     // says: a struct of more than 16 members
inline constexpr fails<error_enum> p15{p, 9, "A", none};    // says: `constexpr std::string_view to_string(E)`
inline constexpr takes<has_wide> p19{p, 9, "A", none};      // says: this type has no XDR form: use integers
inline constexpr takes<has_loose> p20{p, 9, "A", none};     // says: an enum without an underlying type
inline constexpr takes<many_of_nothing> p21{p, 9, "A", none}; // says: the elements of this list take no bytes
inline constexpr takes<marked> p22{p, 9, "A", none};     // says: the members of this struct can't be counted
inline constexpr takes<based> p23{p, 9, "A", none};      // says: the members of this struct can't be counted
inline constexpr takes<any_first> p24{p, 9, "A", none};  // says: the members of this struct can't be counted
inline constexpr takes<sends_bulk> p25{p, 9, "A", none}; // says: an rpc::bulk of more than 1 MiB
inline constexpr gives<gives_bulk> p26{p, 9, "A", none}; // says: an rpc::bulk of more than 4 MiB

#ifdef MENDED
constexpr std::uint32_t first = 1;
constexpr std::uint32_t last = 1023;
#else
constexpr std::uint32_t first = 0;
constexpr std::uint32_t last = 1024;
#endif
inline constexpr plain p16{p, first, "A", none}; // says: procedure_0_is_NULL_which_every_program_answers
inline constexpr plain p17{p, last, "A", none};  // says: a_procedure_number_is_1023_at_most
#ifdef MENDED
constexpr auto of_long = rpc::effect::sets;
#else
constexpr auto of_long = rpc::effect::changes;
#endif
struct long_text {
    xdr::text<5000> text;
};
inline constexpr gives<long_text> p18{p, 9, "A", of_long}; // says: the_duplicate_request_cache_keeps_no

inline constexpr rpc::procedure<results, results, spoken> good{p, 20, "GOOD", none};

struct program final : rpc::typed_program {
    program() : typed_program(p)
    {
#ifdef MENDED
        on(good, [](const results& r) { return r; });
        on(good, [](results r) -> task<rpc::answer<results, spoken>> { co_return r; });
#else
        on(good, of_others);   // says: a handler is called as f(rpc::call&, arguments) or f(arguments)
        on(good, true_always); // says: a handler returns the procedure's results, its error
        on(good, nothing);     // says: a handler returns the procedure's results, its error
#endif
    }
    static spoken of_others(const has_letter&);
    static bool true_always(const results&);
    static void nothing(const results&);
};

struct piece {
    std::uint32_t at = 0;
    rpc::bulk<4096> bytes;
};
struct pieces {
    std::string name;
    std::vector<int> numbers;
    piece first;
};
struct of_its_own {
    std::string name;
    std::vector<std::byte> bytes;
    std::optional<int> number;
    int fixed[2];
};
template<class T>
struct yields {
    task<result<T>> operator()(rpc::client&) const;
};

task<void> clients(std::string url)
{
    (void)co_await rpc::with_client(url, yields<of_its_own>());
    (void)co_await rpc::with_client(url, yields<std::vector<std::byte>>());
    (void)co_await rpc::with_client(url, yields<std::string>());
    (void)co_await rpc::with_client(url, yields<void>());
#ifndef MENDED
    (void)co_await rpc::with_client(url, yields<lease>());              // says: copy the bytes in f
    (void)co_await rpc::with_client(url, yields<rpc::payload>());       // says: copy the bytes in f
    (void)co_await rpc::with_client(url, yields<rpc::reply>());         // says: copy the bytes in f
    (void)co_await rpc::with_client(url, yields<rpc::bulk<4096>>());    // says: copy the bytes in f
    (void)co_await rpc::with_client(url, yields<piece>());              // says: copy the bytes in f
    (void)co_await rpc::with_client(url, yields<pieces>());             // says: copy the bytes in f
    (void)co_await rpc::with_client(url, yields<std::vector<lease>>()); // says: copy the bytes in f
#endif
}

task<void> calls(rpc::client_transport& server)
{
#ifdef MENDED
    (void)co_await good(server, {1});
#else
    good(server, {1}); // says: co_await it: a task does nothing until it is awaited
#endif
    co_return;
}
