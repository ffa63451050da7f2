// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include "client/json_text.hpp"
#include "client/url.hpp"
#include <verbena/core/printable.hpp>

#include <string>
#include <utility>

BOOST_AUTO_TEST_SUITE(client_url_test)

using namespace verbena;
using cli::parse_url;

BOOST_AUTO_TEST_CASE(defaults_follow_the_transport)
{
    const auto tcp = parse_url("nfs+tcp://server/export/a");
    BOOST_REQUIRE(tcp);
    BOOST_TEST((tcp->transport == cli::transport_kind::tcp));
    BOOST_TEST(tcp->host == "server");
    BOOST_TEST(tcp->port == 2049);
    BOOST_TEST(!tcp->port_given);
    BOOST_TEST(tcp->mount_port == 0);
    BOOST_TEST(tcp->path == "/export/a");
    const auto iwarp = parse_url("nfs+iwarp://server");
    BOOST_REQUIRE(iwarp);
    BOOST_TEST((iwarp->transport == cli::transport_kind::iwarp));
    BOOST_TEST(iwarp->port == 20049); // RFC 8166 9
    BOOST_TEST(iwarp->path == "/");
    BOOST_TEST(parse_url("nfs://server/")->port == 2049);
    const auto rdma = parse_url("nfs+rdma://server/x");
    BOOST_REQUIRE(rdma);
    BOOST_TEST((rdma->transport == cli::transport_kind::rdma));
    BOOST_TEST(rdma->port == 20049);
    BOOST_TEST(rdma->to_string() == "nfs+rdma://server:20049/x");
}

BOOST_AUTO_TEST_CASE(ports_and_ipv6)
{
    const auto u = parse_url("nfs+iwarp://[2001:db8::7]/a/b?mountport=635&nfsport=5000");
    BOOST_REQUIRE(u);
    BOOST_TEST(u->host == "2001:db8::7");
    BOOST_TEST(u->port == 5000);
    BOOST_TEST(u->port_given);
    BOOST_TEST(u->mount_port == 635);
    BOOST_TEST(u->path == "/a/b");
    BOOST_TEST(u->to_string() == "nfs+iwarp://[2001:db8::7]:5000/a/b");
    BOOST_TEST(u->authority(111) == "[2001:db8::7]:111");
    const auto bare = parse_url("nfs+tcp://[::1]/x");
    BOOST_REQUIRE(bare);
    BOOST_TEST(bare->host == "::1");
    BOOST_TEST(!bare->port_given);
    BOOST_TEST(parse_url("nfs+tcp://h:2049/x")->port_given);
}

BOOST_AUTO_TEST_CASE(versions)
{
    BOOST_TEST((parse_url("nfs+tcp://h/x")->version == cli::nfs_version::highest));
    BOOST_TEST((parse_url("nfs+tcp://h/x?vers=3")->version == cli::nfs_version::v3));
    const auto four = parse_url("nfs+iwarp://h/x?nfsport=5&vers=4.1&vers=4.1");
    BOOST_REQUIRE(four);
    BOOST_TEST((four->version == cli::nfs_version::v4_1));
    BOOST_TEST(four->port == 5);
    BOOST_TEST((parse_url("nfs+tcp://h/x?vers=4.2")->version == cli::nfs_version::v4_2));
    for (const char* bad :
         {"vers", "vers=", "vers=4", "vers=4.0", "vers=4.3", "vers=3&vers=4.1", "vers=4.1&vers=4.2"})
        BOOST_TEST(!parse_url("nfs+tcp://h/x?" + std::string(bad)));
}

BOOST_AUTO_TEST_CASE(numbers_of_connections)
{
    BOOST_TEST(parse_url("nfs+tcp://h/x")->connections == 1u);
    BOOST_TEST(parse_url("nfs+tcp://h/x?vers=4.2&nconnect=16")->connections == 16u);
    for (const char* wrong : {"nconnect", "nconnect=", "nconnect=0", "nconnect=17", "nconnect=2x",
                              "nconnect=2&nconnect=3", "nconnect=2&vers=3"})
        BOOST_TEST(!parse_url("nfs+tcp://h/x?" + std::string(wrong)));
}

BOOST_AUTO_TEST_CASE(percent_signs)
{
    BOOST_TEST(parse_url("nfs+tcp://h/a%20b%3Fc")->path == "/a b?c");
    BOOST_TEST(!parse_url("nfs+tcp://h/a%2"));
    BOOST_TEST(!parse_url("nfs+tcp://h/a%zz"));
    BOOST_TEST(!parse_url("nfs+tcp://h/a%00b"));
}

BOOST_AUTO_TEST_CASE(what_is_shown_as_a_url_is_one)
{
    for (const std::string path : {"/a b/gr\u00fc\u00dfe", "/100%/?/\\", "/\x1b[31m\x07\x7f\n",
                                   "/\x9b\xff\xc3", "/\u009b", "/\xed\xa0\x80\xf4\x90\x80\x80"}) {
        cli::url u;
        u.host = "h";
        u.port = 1;
        u.path = path;
        const std::string shown = u.to_string();
        const auto again = parse_url(shown);
        BOOST_REQUIRE(again);
        BOOST_TEST(again->path == path);
        BOOST_TEST(is_utf8(shown));
        for (const char c : shown)
            BOOST_TEST((static_cast<unsigned char>(c) >= 0x20 && c != 0x7f));
    }
    BOOST_TEST(parse_url("nfs+tcp://h/a b%C3%A9%25%3F%1B%C2%9B")->to_string() ==
               "nfs+tcp://h:2049/a b\u00e9%25%3F%1B%C2%9B");
}

BOOST_AUTO_TEST_CASE(names_for_a_terminal)
{
    const std::pair<std::string, std::string> cases[] = {
        {"gr\u00fc\u00dfe \u20ac \U0001f600", "gr\u00fc\u00dfe \u20ac \U0001f600"},
        {"a\\b\n\x1b\x7f", "a\\\\b\\012\\033\\177"},
        {std::string("\0x", 2), "\\000x"},
        {"\u0080\u009f\u00a0", "\\302\\200\\302\\237\u00a0"},
        // No UTF-8 (RFC 3629): alone, cut short, overlong, a surrogate, beyond U+10FFFF.
        {"\x9b", "\\233"},
        {"\xc3", "\\303"},
        {"\xe2\x82", "\\342\\202"},
        {"\xc0\xaf", "\\300\\257"},
        {"\xed\xa0\x80", "\\355\\240\\200"},
        {"\xf4\x90\x80\x80", "\\364\\220\\200\\200"},
    };
    for (const auto& [name, shown] : cases)
        BOOST_TEST(printable(name) == shown);
    BOOST_TEST(printable_lines("a\\b\r\nc\x9b") == "a\\b\\015\nc\\233");
}

BOOST_AUTO_TEST_CASE(names_in_json)
{
    // RFC 4648 10.
    BOOST_TEST(cli::base64("") == "");
    BOOST_TEST(cli::base64("f") == "Zg==");
    BOOST_TEST(cli::base64("fo") == "Zm8=");
    BOOST_TEST(cli::base64("foo") == "Zm9v");
    BOOST_TEST(cli::base64("foobar") == "Zm9vYmFy");
    BOOST_TEST(cli::base64("\xff\xfe\xfd") == "//79");
}

BOOST_AUTO_TEST_CASE(what_is_no_url_is_refused_with_the_rule)
{
    for (const char* text :
         {"", "server:/export", "http://h/x", "nfs+rdm://h/x", "nfs+tcp:///x", "nfs+tcp://h:0/",
          "nfs+tcp://h:70000/", "nfs+tcp://h:x/", "nfs+tcp://[::1/x", "nfs+tcp://h/?port=1",
          "nfs+tcp://h/?mountport=", "nfs+tcp://h/?mountport=1x", "nfs+tcp://h/?mountport=0",
          "nfs+tcp://h/?mountport=65536", "nfs+tcp://h/?nfsport=67585", "nfs+tcp://h/?nfsport=99999999999"}) {
        const auto u = parse_url(text);
        BOOST_TEST(!u, text);
        if (!u)
            BOOST_TEST(std::string(u.error().context()) != "");
    }
    BOOST_TEST(!parse_url("nfs+tcp://h/" + std::string(5000, 'a')));
}

BOOST_AUTO_TEST_CASE(ports_that_contradict_each_other_are_refused)
{
    for (const char* text : {"nfs+tcp://h:7/x?nfsport=8", "nfs+iwarp://[::1]:20049/x?nfsport=7",
                             "nfs+tcp://h/x?nfsport=7&nfsport=8", "nfs+tcp://h/x?mountport=7&mountport=8"}) {
        const auto u = parse_url(text);
        BOOST_TEST(!u, text);
        if (!u)
            BOOST_TEST((std::string(u.error().context()).find("contradict each other") != std::string::npos));
    }
    const auto same = parse_url("nfs+tcp://h:7/x?nfsport=7&mountport=7");
    BOOST_REQUIRE(same);
    BOOST_TEST(same->port == 7);
}

BOOST_AUTO_TEST_CASE(schemes_are_all_named_where_none_fits)
{
    const auto u = parse_url("http://h/x");
    BOOST_REQUIRE(!u);
    for (const char* scheme : {" nfs://", "nfs+tcp://", "nfs+iwarp://", "nfs+rdma://"})
        BOOST_TEST((std::string(u.error().context()).find(scheme) != std::string::npos), scheme);
}

BOOST_AUTO_TEST_CASE(a_block_device_is_no_file)
{
    for (const char* text : {"rnbd+iwarp://h/disk", "rnbd+rdma://h/disk"}) {
        const auto u = parse_url(text);
        BOOST_REQUIRE(!u);
        BOOST_TEST((std::string(u.error().context()).find("`verbena block`") != std::string::npos), text);
    }
}

BOOST_AUTO_TEST_CASE(local_paths_are_no_urls)
{
    BOOST_TEST(cli::is_url("nfs+tcp://h/x"));
    BOOST_TEST(!cli::is_url("/srv/nfs+tcp://x"));
    BOOST_TEST(!cli::is_url("file"));
    BOOST_TEST(!cli::is_url("./a:b"));
}

BOOST_AUTO_TEST_SUITE_END()
