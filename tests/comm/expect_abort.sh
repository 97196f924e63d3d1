#!/bin/sh
# expect_abort.sh WORDS COMMAND...: the command must fail by itself and say WORDS.
words=$1
shift
output=$("$@" 2>&1)
status=$?
if [ "$status" -eq 0 ]; then
    echo "the job succeeded"
    exit 1
fi
case $output in
*"$words"*) exit 0 ;;
esac
echo "exit status $status, but '$words' is not in the output:"
echo "$output"
exit 1
