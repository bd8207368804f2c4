-- How often each word stands in the messages of a minute: in those that have a time of their own
-- by that, in others by when the proxy took them.
SELECT date_format(window.start, "yyyy-MM-dd'T'HH:mm:ssXXX") AS minute, word, count(*) AS count, word AS key
FROM (SELECT event_time, explode(split(lower(value), '[^a-z]+')) AS word FROM changes)
WHERE word != ''
GROUP BY window(event_time, '1 minute'), word
